// The kernels of `graph` on a GPU.
#include "workloads/arrays/warp_launch.cuh"
#include "workloads/graph/bfs_kernel.hpp"
#include "workloads/graph/components_kernel.hpp"
#include "workloads/graph/pagerank_kernel.hpp"

using InStorage = hippogriff::array_view<Vertex>;
using InMemory = PlainData<Vertex>;

template void on_gpu_warps(const BfsLevel<InStorage>& work, std::uint64_t items);
template void on_gpu_warps(const BfsLevel<InMemory>& work, std::uint64_t items);
template void on_gpu_warps(const ChosenLists<InStorage, BfsFromBelow>& work, std::uint64_t items);
template void on_gpu_warps(const ChosenLists<InMemory, BfsFromBelow>& work, std::uint64_t items);
template void on_gpu_warps(const CcSample<InStorage>& work, std::uint64_t items);
template void on_gpu_warps(const CcSample<InMemory>& work, std::uint64_t items);
template void on_gpu_warps(const ChosenLists<InStorage, CcOthers>& work, std::uint64_t items);
template void on_gpu_warps(const ChosenLists<InMemory, CcOthers>& work, std::uint64_t items);
template void on_gpu_warps(const EveryEdge<InStorage, PageRankPull>& work, std::uint64_t items);
template void on_gpu_warps(const EveryEdge<InMemory, PageRankPull>& work, std::uint64_t items);
template void on_gpu_warps(const ChosenLists<InMemory, BfsFromAbove>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<MarkTiles<BfsFromAbove>>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<MarkTiles<BfsFromBelow>>& work, std::uint64_t items);
template void on_gpu_warps(const BfsCollect& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<BfsBegin>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<CcBegin>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<CcProbe>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<CcJump>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<PageRankState>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<PageRankBegin>& work, std::uint64_t items);
