// The kernels of generate_kernel.hpp on a GPU, and CUB's between them.
#include "workloads/arrays/warp_launch.cuh"
#include "workloads/graph/generate_kernel.hpp"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

template void on_gpu_warps(const ForAll<ClearCounts>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<CountDrawn>& work, std::uint64_t items);
template void on_gpu_warps(const DrawPart& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<ListEnds>& work, std::uint64_t items);
template void on_gpu_warps(const ForAll<TakeNeighbours>& work, std::uint64_t items);

namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

class Scratch {
 public:
  explicit Scratch(std::size_t bytes) { check(cudaMalloc(&memory_, bytes), "allocate for CUB"); }

  ~Scratch() { static_cast<void>(cudaFree(memory_)); }

  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

// Calls run(memory, bytes) twice, as CUB's functions want it: how much memory, then with it.
template <typename Run>
void with_scratch(const char* what, const Run& run) {
  std::size_t bytes = 0;
  check(run(nullptr, bytes), what);
  const Scratch scratch(bytes);
  check(run(scratch.get(), bytes), what);
  check(cudaDeviceSynchronize(), what);
}

}  // namespace

void gpu_running_sum(Count* values, std::uint64_t count) {
  with_scratch("sum up", [&](void* memory, std::size_t& bytes) {
    return cub::DeviceScan::InclusiveSum(
        memory, bytes, values, values, static_cast<std::int64_t>(count));
  });
}

Count* gpu_sort(Count* keys, Count* other, std::uint64_t count, unsigned bits) {
  cub::DoubleBuffer<Count> both(keys, other);
  with_scratch("sort", [&](void* memory, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(
        memory, bytes, both, static_cast<std::int64_t>(count), 0, static_cast<int>(bits));
  });
  return both.Current();
}

void gpu_unique(const Count* from, Count* to, std::uint64_t count, Count* kept) {
  with_scratch("leave out what is there twice", [&](void* memory, std::size_t& bytes) {
    return cub::DeviceSelect::Unique(
        memory, bytes, from, to, kept, static_cast<std::int64_t>(count));
  });
}

std::uint64_t gpu_free_bytes() {
  std::size_t free_bytes = 0;
  std::size_t all = 0;
  check(cudaMemGetInfo(&free_bytes, &all), "ask for free memory");
  return free_bytes;
}
