// The work of `align` on a GPU.
#include "workloads/align/align_work.hpp"
#include "workloads/sharing/launch.cuh"

template void on_gpu(const AlignWork& work, std::size_t count);
