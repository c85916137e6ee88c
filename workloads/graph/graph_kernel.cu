// The kernels of `graph` on a GPU.
#include "workloads/arrays/warp_launch.cuh"
#include "workloads/graph/graph_kernel.hpp"

using InStorage = hippogriff::array_view<Vertex>;
using InMemory = PlainData<Vertex>;

template void on_gpu_warps(const BfsLevel<InStorage>& work, std::uint64_t items);
template void on_gpu_warps(const BfsLevel<InMemory>& work, std::uint64_t items);
template void on_gpu_warps(const EveryEdge<InStorage, CcHook>& work, std::uint64_t items);
template void on_gpu_warps(const EveryEdge<InMemory, CcHook>& work, std::uint64_t items);
template void on_gpu_warps(const EveryEdge<InStorage, PageRankPull>& work, std::uint64_t items);
template void on_gpu_warps(const EveryEdge<InMemory, PageRankPull>& work, std::uint64_t items);
template void on_gpu_warps(const BfsCollect& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<BfsBegin>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<CcBegin>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<CcJump>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<PageRankState>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<PageRankBegin>& work, std::uint64_t items);
