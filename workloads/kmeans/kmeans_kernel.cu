// The kernels of `kmeans` on a GPU.
#include "workloads/kmeans/kmeans_kernel.hpp"
#include "workloads/papers/launch.cuh"

template void on_gpu_blocks(const KmeansJoin& work, std::size_t blocks);
template void on_gpu_blocks(const KmeansMeans& work, std::size_t blocks);
