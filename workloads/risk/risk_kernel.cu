// The work of `risk` on a GPU.
#include "workloads/risk/risk_work.hpp"
#include "workloads/sharing/launch.cuh"

template void on_gpu(const RiskWork& work, std::size_t count);
