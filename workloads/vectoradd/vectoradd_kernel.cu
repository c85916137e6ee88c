// The kernels of `vectoradd` on a GPU.
#include "workloads/arrays/warp_launch.cuh"
#include "workloads/vectoradd/vectoradd_kernel.hpp"

template void on_gpu_warps(const AddThroughArrays& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<AddInMemory>& work, std::uint64_t items);

void flush_on_gpu(hippogriff::array<Number>& numbers) {
  hippogriff::flush(numbers);
}
