// The kernel of `hotspot` on a GPU.
#include "workloads/hotspot/hotspot_kernel.hpp"
#include "workloads/papers/launch.cuh"

template void on_gpu_blocks(const HotspotSteps& work, std::size_t blocks);
