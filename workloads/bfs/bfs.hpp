// Breadth-first search: how many edges each node of a directed graph is away from one.
#pragma once

#include "workloads/bfs/bfs_kernel.hpp"
#include "workloads/papers/program.hpp"

// Input: uint32 where each node's edges begin, and where the last one's end; then uint32 where each
// edge leads. Output: int32 the distance of each node, -1 where no way leads.
Format bfs_format();
std::uint64_t bfs_output_bytes(const Numbers& numbers);
std::uint64_t bfs_edges(const Numbers& numbers);

// In one pass over the edges: none leads further than by one, and to every node but the source one
// leads from a node that is nearer by one. Only the true distances are like that.
Verdict bfs_check(const Input& in, const File& out);
