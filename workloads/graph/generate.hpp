// Graphs as GAP's benchmark defines them (Beamer, Asanović, Patterson, 2015), by place instead of
// order: the same file for a seed, whatever threads and memory it is made with.
#pragma once

#include <cstdint>
#include <string>

class Device;

enum class GraphKind {
  kronecker,  // 2^scale vertices, A = .57, B = C = .19; vertices renamed
  uniform,    // both ends anywhere
};

struct GraphWish {
  GraphKind kind = GraphKind::kronecker;
  unsigned scale = 10;
  unsigned edge_factor = 16;  // undirected edges drawn for each vertex
  std::uint64_t seed = 27491;
  std::uint64_t memory_bytes = 0;  // for neighbours, beside 16 bytes a vertex
};

// An edge that is drawn stands in both ends' lists; loops and what is drawn again are left out.
// Lists are in order. Where not all neighbours fit into memory edges are drawn again for
// each part. Throws std::system_error.
void generate_graph(const std::string& path, const GraphWish& wish);

// The same file, made on a device: its kernels draw, sort and count, and hippogriff writes what is
// in its memory. There it takes 8 bytes a vertex, and 17 for each neighbour that is worked on at
// the same time: as many as memory_bytes says, 2^30 at most, fewer where the device has no room.
// Throws as generate_graph, std::runtime_error of the device, hippogriff::TransferError.
void generate_graph_on(Device& device,
                       const std::string& device_name,
                       const std::string& path,
                       const GraphWish& wish);
