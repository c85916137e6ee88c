// Pinned host memory, which a CUDA device copies at full speed.
#pragma once

#if HIPPOGRIFF_HAS_CUDA

#include "device/cuda_context.hpp"

#include <map>
#include <mutex>

namespace hippogriff {

// Thread-safe. Destruction releases the pinned memory that is left.
class CudaPinned {
 public:
  // `numa_node`: where pinned pages should lie; -1 leaves it to the kernel.
  CudaPinned(const CudaContext& context, int numa_node);
  ~CudaPinned();
  CudaPinned(const CudaPinned&) = delete;
  CudaPinned& operator=(const CudaPinned&) = delete;

  // Pages come from huge pages where the kernel has some, are touched before they are pinned, and
  // are absent in forked children. Throws Error(out_of_host_memory, device_error).
  [[nodiscard]] std::byte* allocate(std::size_t size_bytes);
  void release(std::byte* memory) noexcept;

 private:
  void release_pages(std::byte* memory, std::size_t size_bytes) const noexcept;

  const CudaContext& context_;
  int numa_node_;
  std::mutex mutex_;
  std::map<std::byte*, std::size_t> sizes_;
};

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
