// The kernels of `dwt2d` on a GPU.
#include "workloads/dwt2d/dwt2d_kernel.hpp"
#include "workloads/papers/launch.cuh"

template void on_gpu_blocks(const DwtLevel<DwtPixels, DwtDownwards>& work, std::size_t blocks);
template void on_gpu_blocks(const DwtLevel<DwtPlanes, DwtDownwards>& work, std::size_t blocks);
template void on_gpu_blocks(const DwtLevel<DwtPixels, DwtTowardsZero>& work, std::size_t blocks);
template void on_gpu_blocks(const DwtLevel<DwtPlanes, DwtTowardsZero>& work, std::size_t blocks);
