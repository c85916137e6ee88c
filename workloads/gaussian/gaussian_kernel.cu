// The kernels of `gaussian` on a GPU.
#include "workloads/gaussian/gaussian_kernel.hpp"
#include "workloads/papers/launch.cuh"

template void on_gpu_blocks(const GaussianDiagonal& work, std::size_t blocks);
template void on_gpu_blocks(const GaussianBeside& work, std::size_t blocks);
template void on_gpu_blocks(const GaussianRest& work, std::size_t blocks);
template void on_gpu_blocks(const GaussianSolve& work, std::size_t blocks);
template void on_gpu_blocks(const GaussianAbove& work, std::size_t blocks);
