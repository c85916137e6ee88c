// XXH3 of many blocks of memory: a warp for each, a lane of the algorithm per thread.
// Grid: a group of 32 threads for each block. Reads the blocks, writes the results with plain
// stores: both are visible to the host once an event behind the kernel is complete.
#include "checksum/xxh3_kernel.hpp"
#include "checksum/xxh3_lanes.hpp"

namespace {

using namespace hippogriff::xxh3;

__constant__ constexpr Secret device_secret = default_secret;

constexpr unsigned all_threads = 0xFFFFFFFF;

// One lane in this thread; the others are the threads of its warp, which come here together.
struct ThreadLanes {
  Lane lane;
  unsigned index;
  unsigned team;

  template <typename Function>
  __device__ __forceinline__ void each(Function function) {
    function(lane, index, team);
  }

  __device__ __forceinline__ void exchange() {
    lane.gain += __shfl_xor_sync(all_threads, lane.lent, 1);
  }

  __device__ __forceinline__ void settle(std::uint64_t rounds) {
    HIPPO_UNROLL
    for (unsigned from = 0; from < team_count; ++from) {
      const std::uint64_t gain = __shfl_sync(all_threads, lane.gain, from * lane_count + index);
      if (from < rounds) {
        hippogriff::xxh3::settle(lane, gain);
      }
    }
  }

  __device__ __forceinline__ std::uint64_t fold_pairs() const {
    std::uint64_t folded = multiply_fold(lane.sum, __shfl_xor_sync(all_threads, lane.sum, 1));
    folded += __shfl_xor_sync(all_threads, folded, 2);
    return folded + __shfl_xor_sync(all_threads, folded, 4);
  }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(threads_per_block)
    hippogriff_xxh3_blocks(const Launch launch) {
  const Block block = reinterpret_cast<const Block*>(launch.blocks)[blockIdx.x];
  const auto* input = reinterpret_cast<const std::uint8_t*>(block.address);
  ThreadLanes lanes;
  lanes.index = threadIdx.x % lane_count;
  lanes.team = threadIdx.x / lane_count;
  std::uint64_t checksum = 0;
  if (block.size_bytes <= short_bytes_max) {
    if (threadIdx.x == 0) {
      checksum = hash_short(input, block.size_bytes, device_secret);
    }
  } else if (block.address % 8 == 0) {
    checksum = hash_long<true>(lanes, input, block.size_bytes, device_secret);
  } else {
    checksum = hash_long<false>(lanes, input, block.size_bytes, device_secret);
  }
  if (threadIdx.x == 0) {
    reinterpret_cast<std::uint64_t*>(launch.checksums)[blockIdx.x] = checksum;
  }
}
