// The kernels of `queries` on a GPU.
#include "workloads/arrays/warp_launch.cuh"
#include "workloads/queries/queries_kernel.hpp"

using InStorage = hippogriff::array_view<double>;
using InMemory = PlainData<double>;

template void on_gpu_warps(const ScanDistances<InStorage>& work, std::uint64_t items);
template void on_gpu_warps(const ScanDistances<InMemory>& work, std::uint64_t items);
template void on_gpu_warps(const AskTile& work, std::uint64_t items);
template void on_gpu_warps(const DollarsAMile<InStorage>& work, std::uint64_t items);
template void on_gpu_warps(const DollarsAMile<InMemory>& work, std::uint64_t items);
