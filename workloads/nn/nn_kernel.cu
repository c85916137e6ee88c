// The kernels of `nn` on a GPU.
#include "workloads/nn/nn_kernel.hpp"
#include "workloads/papers/launch.cuh"

template void on_gpu_blocks(const NnSmallest<NnPlaces>& work, std::size_t blocks);
template void on_gpu_blocks(const NnSmallest<NnKeys>& work, std::size_t blocks);
template void on_gpu_blocks(const NnAnswers& work, std::size_t blocks);
