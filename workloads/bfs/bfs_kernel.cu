// The kernels of `bfs` on a GPU.
#include "workloads/bfs/bfs_kernel.hpp"
#include "workloads/papers/launch.cuh"

template void on_gpu_blocks(const BfsBegin& work, std::size_t blocks);
template void on_gpu_blocks(const BfsLevel& work, std::size_t blocks);
