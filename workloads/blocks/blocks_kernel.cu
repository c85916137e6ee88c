// The kernels of `blocks` on a GPU.
#include "workloads/arrays/warp_launch.cuh"
#include "workloads/blocks/blocks_kernel.hpp"

template void on_gpu_warps(const ReadBlocks& work, std::uint64_t items);
template void on_gpu_warps(const WriteBlocks& work, std::uint64_t items);

void flush_on_gpu(hippogriff::array<Word>& words) {
  hippogriff::flush(words);
}
