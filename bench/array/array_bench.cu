// Measures arrays on a GPU over host memory: misses, hits and writes, beside zero-copy reads of the
// same blocks in the same run, and rows gathered on a stream. Results are checked. Prints JSON
// lines. usage: array_bench [--only accesses|gather] [GIB_OF_DATA [GIB_OF_CACHE [QUEUES
// [GIB_READ]]]]
#include "array_check.cuh"
#include "array_data.cuh"
#include "gathers.cuh"

#include <hippogriff/array.cuh>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace {

using hippogriff::array;
using hippogriff::array_view;
using hippogriff::ondemand::Held;
using hippogriff::ondemand::Intent;
using hippogriff::ondemand::Lanes;
using hippogriff::ondemand::NvmeStatus;

constexpr double kernel_limit = 100;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;

__device__ std::uint64_t picked(std::uint64_t round, std::uint64_t salt, std::uint64_t count) {
  return __umul64hi(mixed((warp_number() << 20U) + round + (salt << 50U)), count);
}

__global__ void zero_copy(const char* data,
                          std::uint64_t blocks,
                          unsigned bytes,
                          unsigned rounds,
                          std::uint64_t salt,
                          unsigned long long* wrong) {
  unsigned long long mine = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    const std::uint64_t block = picked(round, salt, blocks);
    mine +=
        wrong_in(reinterpret_cast<const Sixteen*>(data + block * bytes), block * bytes / 8, bytes);
  }
  if (mine != 0) {
    atomicAdd(wrong, mine);
  }
}

// A warp reads whole lines where they are in the cache.
__global__ void lines(array_view<std::uint64_t> view,
                      std::uint64_t blocks,
                      unsigned rounds,
                      std::uint64_t salt,
                      unsigned long long* wrong) {
  const Lanes warp = Lanes::warp();
  const hippogriff::ondemand::Cache& cache = view.cache();
  unsigned long long mine = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    const std::uint64_t line = picked(round, salt, blocks);
    const Held held = cache.hold(warp, line, Intent::use);
    if (held.status != NvmeStatus::success) {
      mine += 1;
      continue;
    }
    mine += wrong_in(reinterpret_cast<const Sixteen*>(cache.bytes_of(held.place)),
                     line * cache.line_bytes() / 8,
                     cache.line_bytes());
    static_cast<void>(cache.drop(warp, held, false));
  }
  if (mine != 0) {
    atomicAdd(wrong, mine);
  }
}

// Plain view[i]: the warp's lanes beside each other, at random places.
__device__ void read_elements(const array_view<std::uint64_t>& view,
                              std::uint64_t count,
                              unsigned rounds,
                              std::uint64_t salt,
                              unsigned long long* wrong) {
  unsigned long long mine = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    const std::uint64_t index = picked(round, salt, count / 32) * 32 + threadIdx.x % 32;
    mine += view[index] == value_at(index) ? 0 : 1;
  }
  if (mine != 0) {
    atomicAdd(wrong, mine);
  }
}

__global__ void elements(array_view<std::uint64_t> view,
                         std::uint64_t count,
                         unsigned rounds,
                         std::uint64_t salt,
                         unsigned long long* wrong) {
  read_elements(view, count, rounds, salt, wrong);
}

// With 64 registers at most: more warps at once.
__global__ void __launch_bounds__(128, 8)
    elements_64(const __grid_constant__ array_view<std::uint64_t> view,
                std::uint64_t count,
                unsigned rounds,
                std::uint64_t salt,
                unsigned long long* wrong) {
  read_elements(view, count, rounds, salt, wrong);
}

// Plain view[i] at a place of each lane's own: as many lines as lanes.
__global__ void scattered(array_view<std::uint64_t> view,
                          std::uint64_t count,
                          unsigned rounds,
                          std::uint64_t salt,
                          unsigned long long* wrong) {
  unsigned long long mine = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    const std::uint64_t index = mixed(picked(round, salt, count) * 32 + threadIdx.x % 32) % count;
    mine += view[index] == value_at(index) ? 0 : 1;
  }
  if (mine != 0) {
    atomicAdd(wrong, mine);
  }
}

// Each thread goes through a stretch of its own.
__global__ void cursors(array_view<std::uint64_t> view,
                        std::uint64_t count,
                        unsigned stretch,
                        unsigned long long* wrong) {
  const std::uint64_t thread = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::uint64_t begin = mixed(thread) % (count / stretch) * stretch;
  hippogriff::array_cursor<std::uint64_t> cursor(view);
  unsigned long long mine = 0;
  for (std::uint64_t i = begin; i < begin + stretch; ++i) {
    mine += cursor[i] == value_at(i) ? 0 : 1;
  }
  if (mine != 0) {
    atomicAdd(wrong, mine);
  }
}

// Each warp goes through a stretch of its own, its lanes beside each other.
__global__ void cursors_of_warps(array_view<std::uint64_t> view,
                                 std::uint64_t count,
                                 unsigned stretch,
                                 unsigned long long* wrong) {
  const std::uint64_t begin = mixed(warp_number()) % (count / stretch) * stretch;
  hippogriff::array_cursor<std::uint64_t> cursor(view);
  unsigned long long mine = 0;
  for (std::uint64_t i = begin + threadIdx.x % 32; i < begin + stretch; i += 32) {
    mine += cursor[i] == value_at(i) ? 0 : 1;
  }
  if (mine != 0) {
    atomicAdd(wrong, mine);
  }
}

// Overwrites every line as a whole with the values it has.
__global__ void overwrite(array_view<std::uint64_t> view,
                          std::uint64_t blocks,
                          unsigned long long* wrong) {
  const Lanes warp = Lanes::warp();
  const hippogriff::ondemand::Cache& cache = view.cache();
  const std::uint64_t warps = static_cast<std::uint64_t>(gridDim.x) * blockDim.x / 32;
  for (std::uint64_t line = warp_number(); line < blocks; line += warps) {
    const Held held = cache.hold(warp, line, Intent::overwrite);
    if (held.status != NvmeStatus::success) {
      atomicAdd(wrong, 1ULL);
      continue;
    }
    auto* values = reinterpret_cast<std::uint64_t*>(cache.bytes_of(held.place));
    for (unsigned i = warp.rank(); i < cache.line_bytes() / 8; i += 32) {
      values[i] = value_at(line * cache.line_bytes() / 8 + i);
    }
    static_cast<void>(cache.drop(warp, held, true));
  }
}

struct Sizes {
  std::uint64_t data = 8 * gib;
  std::uint64_t cache = gib;
  std::uint32_t queues = 0;
  double moved = 4;  // GiB that each kernel reads
  bool accesses = true;
  bool gathers = true;
};

unsigned long long wrong_values = 0;

void tell(const char* what,
          unsigned line,
          double seconds,
          double accesses,
          double bytes,
          unsigned long long wrong) {
  std::printf(
      "{\"case\": \"%s\", \"line_bytes\": %u, \"seconds\": %.6f, \"million_a_second\": %.3f, "
      "\"gb_a_second\": %.3f, \"wrong\": %llu}\n",
      what,
      line,
      seconds,
      accesses / seconds / 1e6,
      bytes / seconds / 1e9,
      wrong);
  std::fflush(stdout);
  wrong_values += wrong;
}

constexpr unsigned grid = 132 * 16;
constexpr unsigned block = 128;
constexpr double warps = grid * (block / 32.0);

unsigned rounds_for(const Sizes& sizes, unsigned line, double of_warps = warps) {
  return std::max(4U, static_cast<unsigned>(sizes.moved * gib / of_warps / line));
}

// As many blocks as run at once. With more, unless they are a multiple, the last ones run alone.
template <typename Kernel>
unsigned blocks_at_once(Kernel* kernel) {
  int each = 0;
  int processors = 0;
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, block, 0), "occupancy");
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "occupancy");
  return static_cast<unsigned>(each * processors);
}

void measure_zero_copy(const Data& data, const Sizes& sizes, unsigned line, DeviceNumber& wrong) {
  const std::uint64_t blocks = data.values().size_bytes() / line;
  const unsigned groups = blocks_at_once(zero_copy);
  const double readers = groups * (block / 32.0);
  const unsigned rounds = rounds_for(sizes, line, readers);
  void* there = nullptr;
  check_cuda(cudaHostGetDevicePointer(&there, data.values().data(), 0), "find registered memory");
  double best = 1e9;
  for (std::uint64_t salt = 0; salt < 3; ++salt) {
    best = std::min(best, timed("zero copy", kernel_limit, [&] {
                      zero_copy<<<groups, block>>>(
                          static_cast<const char*>(there), blocks, line, rounds, salt, wrong.get());
                    }));
  }
  tell("zero copy", line, best, readers * rounds, readers * rounds * line, wrong.read());
  wrong.reset();
}

void measure_misses(const Data& data, const Sizes& sizes, unsigned line, DeviceNumber& wrong) {
  const array<std::uint64_t> view(
      data.values(),
      {.device = "cuda:0",
       .cache_size = std::max<std::uint64_t>(sizes.cache / 16, 4096ULL * line),
       .line_size = line,
       .queue_count = sizes.queues});
  measure_zero_copy(data, sizes, line, wrong);  // while the array has the memory registered
  const std::uint64_t blocks = data.values().size_bytes() / line;
  const unsigned groups = blocks_at_once(lines);
  const unsigned rounds = rounds_for(sizes, line, groups * (block / 32.0));
  double best = 1e9;
  double misses = 0;
  for (std::uint64_t salt = 0; salt < 3; ++salt) {
    const auto before = view.statistics().misses;
    const double seconds = timed("misses", kernel_limit, [&] {
      lines<<<groups, block>>>(view.view(), blocks, rounds, salt + 10, wrong.get());
    });
    if (seconds < best) {
      best = seconds;
      misses = static_cast<double>(view.statistics().misses - before);
    }
  }
  view.check_accesses();
  tell("misses", line, best, misses, misses * line, wrong.read());
  const auto before = view.statistics().misses;
  const double seconds = timed("misses of view[i]", kernel_limit, [&] {
    scattered<<<blocks_at_once(scattered), block>>>(
        view.view(), data.values().size(), std::max(1U, rounds / 32), 20, wrong.get());
  });
  misses = static_cast<double>(view.statistics().misses - before);
  view.check_accesses();
  tell("misses of view[i]", line, seconds, misses, misses * line, wrong.read());
  wrong.reset();
}

void measure_hits(const Data& data, const Sizes& sizes, unsigned line, DeviceNumber& wrong) {
  const array<std::uint64_t> view(data.values(),
                                  {.device = "cuda:0",
                                   .cache_size = sizes.cache,
                                   .line_size = line,
                                   .queue_count = sizes.queues});
  // An eighth of the cache, so that no set of eight places is short of them.
  const std::uint64_t bytes = std::min<std::uint64_t>(sizes.cache, data.values().size_bytes()) / 8;
  const unsigned rounds = 4 * rounds_for(sizes, line);
  const auto hot = [&](std::uint64_t salt) {
    lines<<<grid, block>>>(view.view(), bytes / line, rounds, salt, wrong.get());
  };
  timed("warm up", kernel_limit, [&] { hot(20); });
  timed("warm up", kernel_limit, [&] { hot(21); });
  const auto before = view.statistics().misses;
  double best = 1e9;
  for (std::uint64_t salt = 0; salt < 3; ++salt) {
    best = std::min(best, timed("hits of lines", kernel_limit, [&] { hot(salt + 30); }));
  }
  tell("hits of lines", line, best, warps * rounds, warps * rounds * line, wrong.read());
  constexpr unsigned element_rounds = 2000;
  const double accesses = warps * 32 * element_rounds;
  const auto measure = [&](const char* what, auto kernel) {
    double seconds = 1e9;
    for (std::uint64_t salt = 0; salt < 3; ++salt) {
      seconds = std::min(seconds, timed(what, kernel_limit, [&] {
                           kernel<<<grid, block>>>(
                               view.view(), bytes / 8, element_rounds, salt, wrong.get());
                         }));
    }
    tell(what, line, seconds, accesses, accesses * 8, wrong.read());
  };
  measure("hits of view[i]", elements);
  measure("hits of view[i], 64 registers", elements_64);
  constexpr unsigned stretch = 4096;
  best = timed("hits of cursors", kernel_limit, [&] {
    cursors<<<grid, block>>>(view.view(), bytes / 8, stretch, wrong.get());
  });
  tell("hits of cursors", line, best, warps * 32 * stretch, warps * 32 * stretch * 8, wrong.read());
  constexpr unsigned warp_stretch = 32 * stretch;
  best = timed("hits of cursors, lanes side by side", kernel_limit, [&] {
    cursors_of_warps<<<grid, block>>>(view.view(), bytes / 8, warp_stretch, wrong.get());
  });
  tell("hits of cursors, lanes side by side",
       line,
       best,
       warps * warp_stretch,
       warps * warp_stretch * 8,
       wrong.read());
  std::printf("{\"case\": \"misses among hits\", \"line_bytes\": %u, \"count\": %llu}\n",
              line,
              static_cast<unsigned long long>(view.statistics().misses - before));
  view.check_accesses();
  wrong.reset();
}

void measure_writes(const Data& data, const Sizes& sizes, unsigned line, DeviceNumber& wrong) {
  array<std::uint64_t> view(data.values(),
                            {.mode = "r+",
                             .device = "cuda:0",
                             .cache_size = sizes.cache / 4,
                             .line_size = line,
                             .queue_count = sizes.queues});
  const std::uint64_t bytes = std::min<std::uint64_t>(sizes.cache, data.values().size_bytes());
  std::fill_n(data.values().begin(), bytes / 8, 0);
  const double seconds = timed("writes of lines", kernel_limit, [&] {
    overwrite<<<grid, block>>>(view.view(), bytes / line, wrong.get());
  });
  const double begin = seconds_now();
  hippogriff::flush(view);
  const double flushing = seconds_now() - begin;
  unsigned long long different = wrong.read();
  for (std::uint64_t i = 0; i < bytes / 8; ++i) {
    different += data.values()[i] == value_at(i) ? 0 : 1;
  }
  tell("writes of lines",
       line,
       seconds,
       static_cast<double>(bytes / line),
       static_cast<double>(bytes),
       different);
  std::printf("{\"case\": \"flush\", \"line_bytes\": %u, \"seconds\": %.6f}\n", line, flushing);
  wrong.reset();
}

void measure_all(const Sizes& sizes) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "ask the device");
  int host_pointers = 0;
  check_cuda(
      cudaDeviceGetAttribute(&host_pointers, cudaDevAttrCanUseHostPointerForRegisteredMem, 0),
      "ask the device");
  std::printf(
      "{\"device\": \"%s\", \"host_pointers\": %d, \"cores\": %u, \"data_bytes\": %llu, "
      "\"cache_bytes\": %llu}\n",
      properties.name,
      host_pointers,
      std::thread::hardware_concurrency(),
      static_cast<unsigned long long>(sizes.data),
      static_cast<unsigned long long>(sizes.cache));
  const Data data(sizes.data);
  DeviceNumber wrong;
  if (sizes.accesses) {
    for (const unsigned line : {512U, 4096U, 8192U, 65536U}) {
      measure_misses(data, sizes, line, wrong);
      measure_hits(data, sizes, line, wrong);
      measure_writes(data, sizes, line, wrong);
    }
  }
  if (sizes.gathers) {
    wrong_values += measure_gathers(data, sizes.queues);
  }
}

// Takes `--only PART` out of the words; false where there is no such part.
bool take_only(std::vector<std::string>& words, Sizes& sizes) {
  const auto option = std::ranges::find(words, "--only");
  if (option == words.end()) {
    return true;
  }
  const std::string part = option + 1 == words.end() ? "" : option[1];
  if (part != "accesses" && part != "gather") {
    return false;
  }
  sizes.accesses = part == "accesses";
  sizes.gathers = part == "gather";
  words.erase(option, option + 2);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes;
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!take_only(words, sizes)) {
    std::fputs("--only takes accesses or gather\n", stderr);
    return 2;
  }
  const auto number = [&](std::size_t place, double fallback) {
    return words.size() > place ? std::strtod(words[place].c_str(), nullptr) : fallback;
  };
  sizes.data = static_cast<std::uint64_t>(number(0, 8) * gib) / 65536 * 65536;
  sizes.cache = static_cast<std::uint64_t>(number(1, 1) * gib) / 65536 * 65536;
  sizes.queues = static_cast<std::uint32_t>(number(2, 0));
  sizes.moved = number(3, 4);
  try {
    measure_all(sizes);
  } catch (const std::exception& error) {
    std::printf("{\"error\": \"%s\"}\n", error.what());
    return 2;
  }
  return wrong_values == 0 ? 0 : 1;
}
