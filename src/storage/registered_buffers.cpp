// A sparse table of buffers, filled as they prove to be used.
#include "storage/registered_buffers.hpp"

#include "storage/storage.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace hippogriff {
namespace {

// Many more than a queue has requests in flight; the table takes 16 bytes of each.
constexpr std::size_t buffer_count_max = 256;
// The kernel refuses more at once.
constexpr std::size_t buffer_bytes_max = std::size_t{1} << 30;

}  // namespace

RegisteredBuffers::~RegisteredBuffers() {
  if (has_table_) {
    // The ring's end would do it as well, but later: the pages would count for a while longer.
    static_cast<void>(::io_uring_unregister_buffers(&ring_));
  }
}

RegisteredBuffers::Buffer* RegisteredBuffers::find(std::span<const std::byte> buffer) {
  const auto known = std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& one) {
    return one.data == buffer.data() && one.size_bytes == buffer.size();
  });
  if (known != buffers_.end()) {
    return &*known;
  }
  if (buffers_.size() == buffer_count_max || buffer.size() > buffer_bytes_max) {
    return nullptr;
  }
  return &buffers_.emplace_back(Buffer{buffer.data(), buffer.size()});
}

int RegisteredBuffers::use(std::span<const std::byte> buffer, std::span<const std::byte> memory) {
  const bool inside = !memory.empty() && memory.data() >= buffer.data() &&
                      memory.data() + memory.size() <= buffer.data() + buffer.size();
  Buffer* known = inside ? find(buffer) : nullptr;
  if (known == nullptr) {
    return -1;
  }
  if (!known->registered && may_try() && ++known->uses >= uses_min) {
    try_register(*known);
  }
  return known->registered ? static_cast<int>(known - buffers_.data()) : -1;
}

bool RegisteredBuffers::may_try() noexcept {
  if (plain_uses_left_ != 0) {
    --plain_uses_left_;
    return false;
  }
  return !refused_;
}

bool RegisteredBuffers::make_table() {
  if (!has_table_) {
    const int result = ::io_uring_register_buffers_sparse(&ring_, buffer_count_max);
    has_table_ = result == 0;
    if (!has_table_) {
      give_up(-result);
    }
  }
  return has_table_;
}

void RegisteredBuffers::try_register(Buffer& buffer) {
  if (!make_table()) {
    return;
  }
  iovec memory{};
  memory.iov_base = const_cast<std::byte*>(buffer.data);
  memory.iov_len = buffer.size_bytes;
  const auto index = static_cast<unsigned>(&buffer - buffers_.data());
  __u64 tag = 0;
  const int result = ::io_uring_register_buffers_update_tag(&ring_, index, &memory, &tag, 1);
  if (result != 1) {
    give_up(result < 0 ? -result : EIO);
    return;
  }
  pause_uses_ = pause_uses_min;
  if (refusal_ != nullptr) {
    refusal_->store(0, std::memory_order_relaxed);
  }
  buffer.registered = true;
  ++registered_count_;
}

void RegisteredBuffers::give_up(int errno_value) {
  const bool may_pass = errno_value == ENOMEM || errno_value == EAGAIN || errno_value == ENOBUFS;
  refused_ = !may_pass;
  plain_uses_left_ = may_pass ? pause_uses_ : 0;
  pause_uses_ = std::min(2 * pause_uses_, pause_uses_max);
  if (refusal_ != nullptr) {
    refusal_->store(errno_value, std::memory_order_relaxed);
  }
}

std::string explain_registration(int errno_value) {
  if (errno_value == ENOMEM) {
    return locked_memory_refusal;
  }
  return errno_value == EINVAL ? "the kernel is older than 5.19" : ::strerrordesc_np(errno_value);
}

std::string why_no_registered_buffers() {
  constexpr std::size_t size_bytes = std::size_t{2} << 20;
  constexpr std::size_t alignment = 4096;
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(alignment, size_bytes), &std::free);
  if (memory == nullptr) {
    return explain_registration(ENOMEM);
  }
  io_uring ring{};
  if (const int result = ::io_uring_queue_init(1, &ring, 0); result != 0) {
    return explain_registration(-result);
  }
  const auto refusal = std::make_shared<std::atomic<int>>(0);
  {
    RegisteredBuffers buffers(ring, refusal);
    const std::span<const std::byte> bytes{static_cast<const std::byte*>(memory.get()), size_bytes};
    for (std::uint32_t use = 0; use < RegisteredBuffers::uses_min; ++use) {
      static_cast<void>(buffers.use(bytes, bytes));
    }
  }
  ::io_uring_queue_exit(&ring);
  return refusal->load() == 0 ? "" : explain_registration(refusal->load());
}

}  // namespace hippogriff
