// The work of `proteins` on a GPU: its two stages.
#include "workloads/proteins/proteins_work.hpp"
#include "workloads/sharing/launch.cuh"

template void on_gpu(const SeedWork& work, std::size_t count);
template void on_gpu(const BandWork& work, std::size_t count);
