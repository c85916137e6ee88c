// The kernels of `cfd` on a GPU.
#include "workloads/cfd/cfd_kernel.hpp"
#include "workloads/papers/launch.cuh"

template void on_gpu_blocks(const CfdBegin& work, std::size_t blocks);
template void on_gpu_blocks(const CfdStage& work, std::size_t blocks);
