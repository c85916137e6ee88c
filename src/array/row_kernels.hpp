// The library's own kernels for arrays on a CUDA device: loaded from the image inside it, launched.
#pragma once

#include "array/row_moves.hpp"
#include "device/device.hpp"

#include <memory>

namespace hippogriff::ondemand {

enum class RowKernel : std::uint8_t { gather, scatter, flush, prefetch, zero_copy };

// One context's copy of the kernels, of an image with all architectures we name and PTX. The
// context must be current for every call, at the end too.
class RowKernels {
 public:
  // Throws Error(unsupported) where the kernels cannot be loaded: a GPU or a driver too old for
  // them.
  static std::unique_ptr<RowKernels> load(const Device& device);
  virtual ~RowKernels() = default;

  // Queues a kernel. What the moves name must stay until it is complete. Throws
  // Error(device_error).
  virtual void launch(RowKernel kernel, const RowMoves& moves, Stream& stream) = 0;
};

}  // namespace hippogriff::ondemand
