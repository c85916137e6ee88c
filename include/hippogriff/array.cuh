// Arrays that live in storage, for CUDA: kernels take hippogriff::array_view<T>.
//
//   hippogriff::array<float> data("data.bin", {.device = "cuda:0", .cache_size = 8ull << 30});
//   kernel<<<blocks, threads>>>(data.view());      // view[i], view.write(i, v), array_cursor
//   hippogriff::flush(data);                       // after kernels that wrote
//
// While kernels use an array nothing may allocate or free device memory in the ordinary way: the
// driver would wait for the kernel. nvcc of CUDA 13 (C++20), or NVRTC (C++17 or later; kernels
// alone), sm_70 and later.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_CUH_
#define HIPPOGRIFF_ARRAY_CUH_

#include <hippogriff/array/cursor.hpp>

#ifndef __CUDACC_RTC__
#include <hippogriff/array.hpp>

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>
#endif

namespace hippogriff {
namespace ondemand {

// Writes the dirty lines; any grid of whole warps. A template, so that the header may be anywhere.
template <int>
__global__ void flush_lines(Cache cache) {
  const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const uint32_t warps = gridDim.x * blockDim.x / 32;
  for (uint64_t place = uint64_t{32} * warp; place < cache.places.place_count();
       place += uint64_t{32} * warps) {
    static_cast<void>(cache.noted(cache.flush_places(Lanes::warp(), static_cast<uint32_t>(place))));
  }
}

}  // namespace ondemand

#ifndef __CUDACC_RTC__
inline namespace v0 {

// Writes what kernels wrote, those before in `stream`, and has the storage keep it. Waits for that.
// Throws TransferError, std::runtime_error for a failure of CUDA.
template <typename T>
void flush(array<T>& the_array, cudaStream_t stream = nullptr) {
  ondemand::flush_lines<0><<<128, 256, 0, stream>>>(the_array.view().cache());
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) {
    error = cudaStreamSynchronize(stream);
  }
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("flush array: ") + cudaGetErrorString(error));
  }
  the_array.sync();
}

}  // namespace v0
#endif

}  // namespace hippogriff

#endif  // HIPPOGRIFF_ARRAY_CUH_
