// Lists of blocks in pinned memory, which a kernel reads and writes in place; copies without one.
#include "checksum/device_checksum.hpp"

#include "base/error.hpp"
#include "checksum/host_checksum.hpp"
#include "checksum/xxh3_host.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace hippogriff {
namespace {

// Blocks of one launch: of 256 KiB they are 8 GiB. Their list takes 768 KiB of pinned memory.
constexpr std::size_t launch_blocks = 32768;
constexpr std::size_t copied_bytes = std::size_t{2} << 20;

// A kernel takes 0.16 ms for 256 MiB, which nothing hides at the end of a load: who slept meanwhile
// would come back as much later. The same for all waits.
constexpr Polling polling{.spin = std::chrono::milliseconds(1)};

}  // namespace

// What is in the pinned memory: one or the other.
union DeviceChecksum::Exchange {
  struct {
    std::array<xxh3::Block, launch_blocks> blocks;
    std::array<std::uint64_t, launch_blocks> checksums;
  } lists;

  std::array<std::byte, copied_bytes> bytes;
};

DeviceChecksum::DeviceChecksum(std::shared_ptr<Device> device, std::chrono::nanoseconds patience)
    : device_(std::move(device)), patience_(patience) {}

DeviceChecksum::~DeviceChecksum() {
  if (kernel_ == nullptr && exchange_ == nullptr) {
    return;
  }
  try {
    const DeviceScope scope(*device_);
    stream_.reset();
    done_.reset();
    kernel_.reset();
    if (exchange_ != nullptr) {
      device_->release_pinned(reinterpret_cast<std::byte*>(exchange_));
    }
  } catch (const Error&) {
    // The device cannot be made current any more: what it held went with it.
    static_cast<void>(done_.release());    // NOLINT(bugprone-unused-return-value)
    static_cast<void>(stream_.release());  // NOLINT(bugprone-unused-return-value)
    static_cast<void>(kernel_.release());  // NOLINT(bugprone-unused-return-value)
  }
}

std::string DeviceChecksum::why_copied() const {
  const std::lock_guard lock(mutex_);
  return why_copied_;
}

bool DeviceChecksum::has_kernel() {
  if (!std::exchange(tried_, true)) {
    if (device_->info().can.cuda_kernels) {
      kernel_ = CudaXxh3::load(why_copied_);
    } else {
      why_copied_ = "device " + device_->info().name + " runs no kernels";
    }
  }
  return kernel_ != nullptr;
}

DeviceChecksum::Exchange& DeviceChecksum::exchange() {
  if (exchange_ == nullptr) {
    exchange_ = reinterpret_cast<Exchange*>(device_->allocate_pinned(sizeof(Exchange)));
  }
  return *exchange_;
}

// Empty: each call waits for what it puts there, and one that fails gives the stream up.
Stream& DeviceChecksum::stream() {
  if (stream_ == nullptr) {
    done_ = device_->create_event();
    stream_ = device_->create_stream();
  }
  return *stream_;
}

// Waits for all that is on the stream.
void DeviceChecksum::finish(const char* operation) {
  stream_->record(*done_);
  if (!wait_for(*done_, patience_, polling)) {
    throw Error({.status = Status::device_error,
                 .operation = operation,
                 .object = device_->info().name,
                 .detail = "it did not complete in time"});
  }
}

void DeviceChecksum::compute(std::span<const MemoryPart> parts,
                             std::uint64_t block_bytes,
                             Event* after,
                             unsigned threads_max,
                             std::span<std::uint64_t> checksums) {
  HIPPO_ASSERT(count_blocks(parts, block_bytes) == checksums.size());
  if (checksums.empty()) {
    return;
  }
  if (device_->info().can.host_addressable) {
    if (after != nullptr && !wait_for(*after, patience_)) {
      throw Error({.status = Status::device_error,
                   .operation = "wait for the work before a checksum",
                   .object = device_->info().name,
                   .detail = "it did not complete in time"});
    }
    checksum_host_memory(parts, block_bytes, threads_max, checksums);
    return;
  }
  const std::lock_guard lock(mutex_);
  BlockQueue queue(parts, block_bytes);
  try {
    if (has_kernel()) {
      by_kernel(queue, after, checksums);
    } else {
      by_copies(queue, after, checksums);
    }
  } catch (...) {
    // The device may still use them: nobody else does again.
    exchange_ = nullptr;
    stream_.reset();
    done_.reset();
    throw;
  }
}

void DeviceChecksum::by_kernel(BlockQueue& queue,
                               Event* after,
                               std::span<std::uint64_t> checksums) {
  auto& lists = exchange().lists;
  Stream& queued = stream();
  if (after != nullptr) {
    queued.wait(*after);
  }
  std::array<MemoryPart, 256> claimed_blocks;
  for (std::size_t done = 0; done < checksums.size();) {
    std::size_t count = 0;
    while (count < launch_blocks) {
      const std::size_t room = std::min(launch_blocks - count, claimed_blocks.size());
      const auto claimed = queue.claim(std::span(claimed_blocks).first(room), UINT64_MAX);
      if (claimed.count == 0) {
        break;
      }
      for (std::size_t index = 0; index < claimed.count; ++index) {
        const MemoryPart& block = claimed_blocks[index];
        lists.blocks[count++] = {block.address.value, block.size_bytes};
      }
    }
    kernel_->launch(
        queued, lists.blocks.data(), lists.checksums.data(), static_cast<std::uint32_t>(count));
    finish("run the checksum kernel");
    std::copy_n(
        lists.checksums.begin(), count, checksums.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
  }
}

void DeviceChecksum::by_copies(BlockQueue& queue,
                               Event* after,
                               std::span<std::uint64_t> checksums) {
  auto& bytes = exchange().bytes;
  Stream& queued = stream();
  if (after != nullptr) {
    queued.wait(*after);
  }
  Xxh3Stream hash;
  for (std::uint64_t& checksum : checksums) {
    MemoryPart block;
    queue.claim(std::span(&block, 1), UINT64_MAX);
    hash.reset();
    for (std::uint64_t offset = 0; offset < block.size_bytes;) {
      const auto size = static_cast<std::size_t>(
          std::min<std::uint64_t>(bytes.size(), block.size_bytes - offset));
      queued.copy_to_host(bytes.data(), block.address + offset, size);
      finish("copy to host");
      hash.update(bytes.data(), size);
      offset += size;
    }
    checksum = hash.digest();
  }
}

}  // namespace hippogriff
