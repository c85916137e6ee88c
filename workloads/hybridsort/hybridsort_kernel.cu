// The kernels of `hybridsort` on a GPU.
#include "workloads/hybridsort/hybridsort_kernel.hpp"
#include "workloads/papers/launch.cuh"

template void on_gpu_blocks(const SortCount& work, std::size_t blocks);
template void on_gpu_blocks(const SortSumPieces& work, std::size_t blocks);
template void on_gpu_blocks(const SortSumAll& work, std::size_t blocks);
template void on_gpu_blocks(const SortScatter& work, std::size_t blocks);
