// The XXH3 kernel on a CUDA device: loaded from the image inside this library, and launched.
#pragma once

#include "checksum/blocks.hpp"
#include "checksum/xxh3_kernel.hpp"

#include <memory>
#include <string>

namespace hippogriff {

// One context's copy of the kernel. The context must be current for every call, at the end too.
class CudaXxh3 {
 public:
  // Loads the kernel for the context that is current on this thread. Null, with `why_not`, where
  // that cannot be: built without CUDA, a GPU or a driver too old for the image.
  static std::unique_ptr<CudaXxh3> load(std::string& why_not);
  virtual ~CudaXxh3() = default;

  // Queues the kernel. `blocks` and `checksums` are pinned memory of the device, `count` of each,
  // which stays until the work is complete. Throws Error(device_error).
  virtual void launch(Stream& stream,
                      xxh3::Block* blocks,
                      std::uint64_t* checksums,
                      std::uint32_t count) = 0;
};

}  // namespace hippogriff
