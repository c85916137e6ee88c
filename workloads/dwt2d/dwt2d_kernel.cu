// The kernels of `dwt2d` on a GPU.
#include "workloads/dwt2d/dwt2d_kernel.hpp"
#include "workloads/papers/launch.cuh"

template void on_gpu_blocks(const DwtLevel<DwtPixels>& work, std::size_t blocks);
template void on_gpu_blocks(const DwtLevel<DwtPlanes>& work, std::size_t blocks);
