// XXH3 of many blocks of memory: eight threads for each, a lane of the algorithm per thread.
// Grid: ceil(count / 4) groups of 32 threads. Reads the blocks, writes the results with plain
// stores: both are visible to the host once an event behind the kernel is complete.
#include "checksum/xxh3_kernel.hpp"
#include "checksum/xxh3_lanes.hpp"

namespace {

using namespace hippogriff::xxh3;

__constant__ constexpr Secret device_secret = default_secret;

// One lane in this thread; the others are the threads beside it, which come here together.
struct ThreadLanes {
  Lane lane;
  unsigned index;
  unsigned mask;  // the eight threads in their warp

  template <typename Function>
  __device__ __forceinline__ void each(Function function) {
    function(lane, index);
  }

  __device__ __forceinline__ void exchange() {
    lane.sum += __shfl_xor_sync(mask, lane.lent, 1);
    lane.lent = 0;
  }

  __device__ __forceinline__ std::uint64_t fold_pairs() const {
    std::uint64_t folded = multiply_fold(lane.sum, __shfl_xor_sync(mask, lane.sum, 1));
    folded += __shfl_xor_sync(mask, folded, 2);
    return folded + __shfl_xor_sync(mask, folded, 4);
  }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(threads_per_group)
    hippogriff_xxh3_blocks(const Launch launch) {
  const unsigned block_index = blockIdx.x * blocks_per_group + threadIdx.x / lane_count;
  if (block_index >= launch.count) {
    return;
  }
  const Block block = reinterpret_cast<const Block*>(launch.blocks)[block_index];
  const auto* input = reinterpret_cast<const std::uint8_t*>(block.address);
  ThreadLanes lanes;
  lanes.index = threadIdx.x % lane_count;
  lanes.mask = 0xFFu << (threadIdx.x / lane_count * lane_count);
  std::uint64_t checksum = 0;
  if (block.size_bytes <= short_bytes_max) {
    if (lanes.index == 0) {
      checksum = hash_short(input, block.size_bytes, device_secret);
    }
  } else if (block.address % 8 == 0) {
    checksum = hash_long<true>(lanes, input, block.size_bytes, device_secret);
  } else {
    checksum = hash_long<false>(lanes, input, block.size_bytes, device_secret);
  }
  if (lanes.index == 0) {
    reinterpret_cast<std::uint64_t*>(launch.checksums)[block_index] = checksum;
  }
}
