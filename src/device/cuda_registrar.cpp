// A small second context, made in the background, and the registrations that go through it.
#include "device/cuda_registrar.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include "base/page_size.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

namespace hippogriff {
namespace {

// A context takes some of the device's memory: where that is short, it is worth more elsewhere.
constexpr std::uint64_t free_bytes_min = std::uint64_t{1} << 30;
constexpr std::uint64_t free_share_min = 16;  // one part in so many

// Memory that is short now may be there later.
constexpr std::chrono::seconds retry_time{10};

bool has_room(const CudaContext& context) {
  const CudaScope scope(context);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  context.check(context.driver().mem_get_info(&free_bytes, &total_bytes),
                "ask for free device memory");
  return free_bytes >= std::max<std::uint64_t>(free_bytes_min, total_bytes / free_share_min);
}

// Nothing runs in this context, so that it needs no memory for kernels: on an H100 it takes 259 MiB
// then, instead of 523.
void shrink(const CudaContext& context) {
  const CudaScope scope(context);
  for (const CUlimit limit :
       {CU_LIMIT_STACK_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE}) {
    static_cast<void>(context.driver().ctx_set_limit(limit, 0));
  }
}

}  // namespace

void fail_pinning(const CudaContext& context, CUresult result, std::size_t size_bytes) {
  if (result != CUDA_ERROR_OUT_OF_MEMORY) {
    context.fail(result, "pin host memory");
  }
  Failure failure;
  failure.status = Status::out_of_host_memory;
  failure.operation = "pin host memory";
  failure.object = context.name();
  failure.device_status = static_cast<int>(result);
  failure.detail = "the driver cannot pin " + std::to_string(size_bytes) + " bytes";
  throw Error(std::move(failure));
}

CudaRegistrar::CudaRegistrar(const CudaContext& primary, int index)
    : primary_(primary),
      index_(index),
      read_only_supported_(
          primary.attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) != 0) {}

CudaRegistrar::~CudaRegistrar() {
  if (!opener_.joinable()) {
    return;
  }
  if (primary_.driver().usable()) {
    opener_.join();
  } else {
    opener_.detach();  // a forked child has no such thread
  }
}

bool CudaRegistrar::aside(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (open_ended_ && own_ == nullptr && std::chrono::steady_clock::now() >= retry_at_) {
    opening_ = false;
  }
  if (!opening_) {
    if (opener_.joinable()) {
      opener_.join();  // it has said so as its last act
    }
    opening_ = true;
    open_ended_ = false;
    try {
      opener_ = std::thread([this] { open(); });
    } catch (const std::system_error&) {
      open_ended_ = true;
      retry_at_ = std::chrono::steady_clock::now() + retry_time;
    }
  }
  opened_.wait_for(lock, patience, [this] { return open_ended_; });
  return own_ != nullptr;
}

bool CudaRegistrar::aside_now() {
  const std::lock_guard lock(mutex_);
  return own_ != nullptr;
}

void CudaRegistrar::open() noexcept {
  std::unique_ptr<CudaContext> own;
  try {
    if (has_room(primary_)) {
      own = std::make_unique<CudaContext>(primary_.driver(), index_, ContextKind::own);
      shrink(*own);
    }
  } catch (const std::exception&) {
    own = nullptr;  // mappings are read instead
  }
  const std::lock_guard lock(mutex_);
  own_ = std::move(own);
  open_ended_ = true;
  retry_at_ = std::chrono::steady_clock::now() + retry_time;
  opened_.notify_all();
}

void CudaRegistrar::register_host(std::byte* memory, std::size_t size_bytes, HostAccess access) {
  if (size_bytes == 0 || reinterpret_cast<std::uintptr_t>(memory) % page_bytes() != 0 ||
      size_bytes % page_bytes() != 0) {
    throw_invalid("pin host memory", "address and size must be multiples of the page size");
  }
  unsigned flags = 0;
  if (access == HostAccess::read_only) {
    if (!read_only_supported_) {
      throw_unsupported("pin host memory",
                        primary_.name() + " cannot register read-only pages of a file");
    }
    flags = CU_MEMHOSTREGISTER_READ_ONLY;
  }
  const CudaContext* context = &primary_;
  {
    const std::lock_guard lock(mutex_);
    if (own_ != nullptr) {
      context = own_.get();
      flags |= CU_MEMHOSTREGISTER_PORTABLE;
    }
  }
  const CudaScope scope(*context);
  const CUresult result = context->driver().mem_host_register(memory, size_bytes, flags);
  if (result != CUDA_SUCCESS) {
    fail_pinning(*context, result, size_bytes);
  }
  try {
    const std::lock_guard lock(mutex_);
    registered_.emplace(memory, context);
  } catch (...) {
    static_cast<void>(context->driver().mem_host_unregister(memory));
    throw;
  }
}

void CudaRegistrar::unregister_host(std::byte* memory) noexcept {
  if (!primary_.driver().usable()) {
    return;
  }
  const CudaContext* context = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = registered_.find(memory);
    if (entry == registered_.end()) {
      return;
    }
    context = entry->second;
    registered_.erase(entry);
  }
  try {
    // A failure means a dead context, whose registrations died with it.
    const CudaScope scope(*context);
    static_cast<void>(context->driver().mem_host_unregister(memory));
  } catch (const Error&) {
    return;
  }
}

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
