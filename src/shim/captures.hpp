// Whether a stream records a graph, without asking the driver before each allocation: a question
// costs as much as the allocation.
#pragma once

#include "shim/driver_api.hpp"

namespace hippogriff::shim {

// Whether the stream records a graph, as the driver says it (`Ask`: cuStreamIsCapturing or its form
// for streams of threads).
template <Function Ask>
bool is_capturing(CUstream stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return real<decltype(::cuStreamIsCapturing)>(Ask)(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// False: no stream of the process captures. A capture whose stream was destroyed counts on.
bool may_capture() noexcept;

}  // namespace hippogriff::shim
