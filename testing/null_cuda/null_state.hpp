// The null driver's books, under one lock.
#pragma once

// With it cuda.h declares every version of every function under its own name.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT: theirs
#include "testing/null_cuda/null_cuda.hpp"

#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace null_cuda {

using hippogriff::testing::null_device_bytes;
using hippogriff::testing::null_device_count;

struct Pool {
  int device = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  bool destroyed = false;
};

struct Block {
  std::uint64_t size_bytes = 0;
  int device = 0;
  CUcontext context = nullptr;
  Pool* pool = nullptr;
};

struct Physical {
  std::uint64_t size_bytes = 0;
  int device = 0;
  int references = 0;
};

struct Node {
  CUgraphNodeType type;
  CUDA_MEM_ALLOC_NODE_PARAMS allocation;
  CUgraph child;
};

struct Stream {
  CUcontext context = nullptr;
  CUgraph capture = nullptr;
  bool in_graphics = false;  // captures for a graphics API, which has no allocations
};

struct Device {
  int retained = 0;
  bool active = false;
  CUmemoryPool default_pool = nullptr;
  CUmemoryPool current_pool = nullptr;
  std::uint64_t graph_used_bytes = 0;
  std::uint64_t graph_reserved_bytes = 0;
};

struct State {
  State();

  std::mutex mutex;
  std::array<Device, null_device_count> devices = {};
  std::map<CUcontext, int> contexts;  // the program's own, by device
  std::map<std::uint64_t, Block> blocks;
  std::map<std::uint64_t, std::shared_ptr<Physical>> handles;
  std::map<std::uint64_t, std::pair<std::uint64_t, std::shared_ptr<Physical>>> mappings;
  std::vector<std::unique_ptr<Pool>> pools;
  std::map<CUgraphExec, std::pair<int, std::uint64_t>> executables;
  std::vector<std::uint64_t> free_addresses;  // the last one freed is handed out first
  std::uint64_t next_address = 0x7f0000000000;
  std::uint64_t context_bytes = 0;
  std::uint64_t growing_bytes = 0;  // of a context in the making
  std::uint64_t allocations = 0;
  std::uint64_t capture_questions = 0;
  int failures = 0;
  std::size_t row_alignment_bytes = 512;
  int version = 13000;
  bool private_addresses = false;
  hippogriff::testing::Launch launch = {};
  float bias = 0;
  CUipcMemHandle handle = {};
};

State& state();

// The rest wants the lock held.
std::uint64_t held_bytes(int device);
// Counts the call, and says whether it may have the bytes.
CUresult admit(int device, std::uint64_t size_bytes);
// The same for a context, which comes bit by bit on a GPU that others share.
CUresult admit_context(int device);
// Tells those who share the GPU what this process has less now.
void tell_shared(int device);
std::uint64_t new_address();
CUresult add_block(std::uint64_t* address, const Block& block);
CUresult free_block(std::uint64_t address);
void end_context(CUcontext context);
void end_primary_context(int device);

std::vector<CUcontext>& context_stack();
CUcontext primary_context(int device);
// The device of the calling thread's context; CUDA_ERROR_INVALID_CONTEXT without one.
CUresult current(CUcontext* context, int* device);

}  // namespace null_cuda
