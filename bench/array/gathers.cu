// Measures whether an array chooses well by itself: rows gathered on a stream as it chooses,
// through the cache, and past it, side by side. All that is gathered is checked.
#include "gathers.cuh"

#include <hippogriff/array.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

using Words = hippogriff::array<std::uint64_t>;

constexpr double gather_limit = 100;
constexpr std::uint64_t row_count = std::uint64_t{1} << 20;
constexpr unsigned rounds = 9;
constexpr unsigned warm_ups_min = 20;  // past its cache an array looks at one gather of sixteen
constexpr std::uint64_t small_cache = std::uint64_t{64} << 20;
constexpr unsigned check_blocks = 132 * 16;
constexpr unsigned check_threads = 128;
constexpr int no_value = 0xA5;  // what rows are overwritten with before each gather

enum class Way : std::uint8_t { automatic, cache, zero_copy };
constexpr std::array ways{Way::automatic, Way::cache, Way::zero_copy};
constexpr std::array way_names{"automatic", "cache", "zero copy"};

// A warp a row.
__global__ void check_rows(const char* rows,
                           const std::uint64_t* numbers,
                           std::uint64_t count,
                           unsigned bytes,
                           unsigned long long* wrong) {
  const std::uint64_t warps = static_cast<std::uint64_t>(gridDim.x) * blockDim.x / 32;
  unsigned long long mine = 0;
  for (std::uint64_t i = warp_number(); i < count; i += warps) {
    mine +=
        wrong_in(reinterpret_cast<const Sixteen*>(rows + i * bytes), numbers[i] * bytes / 8, bytes);
  }
  if (mine != 0) {
    atomicAdd(wrong, mine);
  }
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::uint64_t bytes) {
    check_cuda(cudaMalloc(&memory_, bytes), "allocate memory for rows");
  }

  ~DeviceMemory() { static_cast<void>(cudaFree(memory_)); }

  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

// Over memory of their own each: pages cannot be registered for two.
struct Arrays {
  Words automatic;
  Words cached;  // which never reads past its cache
};

// The numbers of rows and room for them, in the GPU's memory, and a stream.
class Gatherer {
 public:
  explicit Gatherer(unsigned line) : line_(line), rows_(row_count * line) {
    check_cuda(cudaStreamCreate(&stream_), "create a stream");
    check_cuda(cudaEventCreate(&begin_), "create an event");
    check_cuda(cudaEventCreate(&end_), "create an event");
  }

  ~Gatherer() {
    static_cast<void>(cudaEventDestroy(end_));
    static_cast<void>(cudaEventDestroy(begin_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  [[nodiscard]] unsigned line() const { return line_; }

  [[nodiscard]] std::uint64_t bytes() const { return row_count * line_; }

  // Draws the rows of the gathers to come, out of the first so many.
  void draw(std::uint64_t range_rows, std::uint64_t salt) {
    for (std::uint64_t i = 0; i < row_count; ++i) {
      drawn_[i] = mixed(mixed((salt << 32U) + i + 1)) % range_rows;
    }
    check_cuda(cudaMemcpy(numbers_.get(), drawn_.data(), row_count * 8, cudaMemcpyHostToDevice),
               "copy the numbers of rows");
  }

  // Seconds from what was before on the stream to the last row. Adds the values that are wrong.
  double gather(const Arrays& arrays, Way way, unsigned long long& wrong) {
    const hippogriff_device_rows rows{.struct_size = sizeof(hippogriff_device_rows),
                                      .numbers = reinterpret_cast<std::uint64_t>(numbers_.get()),
                                      .memory = reinterpret_cast<std::uint64_t>(rows_.get()),
                                      .count = row_count,
                                      .row_size = line_,
                                      .number_size = 8,
                                      .number_signed = 0,
                                      .stream = stream_};
    check_cuda(cudaMemsetAsync(rows_.get(), no_value, bytes(), stream_), "overwrite rows");
    check_cuda(cudaEventRecord(begin_, stream_), "begin a gather");
    const Words& array = way == Way::cache ? arrays.cached : arrays.automatic;
    hippogriff::detail::check(way == Way::zero_copy
                                  ? hippogriff_array_zero_copy_async(array.get(), &rows)
                                  : hippogriff_array_gather_async(array.get(), &rows));
    check_cuda(cudaEventRecord(end_, stream_), "end a gather");
    wait_for(end_, "gather", gather_limit);
    check_rows<<<check_blocks, check_threads, 0, stream_>>>(
        static_cast<const char*>(rows_.get()),
        static_cast<const std::uint64_t*>(numbers_.get()),
        row_count,
        line_,
        wrong_.get());
    check_cuda(cudaGetLastError(), "check rows");
    check_cuda(cudaStreamSynchronize(stream_), "check rows");
    wrong += wrong_.read();
    wrong_.reset();
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "time a gather");
    return milliseconds / 1e3;
  }

 private:
  unsigned line_;
  DeviceMemory rows_;
  DeviceMemory numbers_{row_count * 8};
  DeviceNumber wrong_;
  std::vector<std::uint64_t> drawn_ = std::vector<std::uint64_t>(row_count);
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

struct Case {
  const char* rows;  // "random" or "again"
  std::uint64_t cache_bytes;
  std::uint64_t range_bytes;  // that rows are drawn out of
};

struct Measured {
  std::vector<double> seconds;
  unsigned long long wrong = 0;  // with those while the caches fill
};

void tell(const Case& each, unsigned line, Way way, Measured measured, const std::string& more) {
  std::ranges::sort(measured.seconds);
  const double median = measured.seconds[measured.seconds.size() / 2];
  std::printf(
      "{\"case\": \"gather\", \"rows\": \"%s\", \"way\": \"%s\", \"line_bytes\": %u, "
      "\"cache_bytes\": %llu, \"range_bytes\": %llu, \"row_count\": %llu, \"rounds\": %zu, "
      "\"seconds\": %.6f, \"seconds_min\": %.6f, \"seconds_max\": %.6f, "
      "\"million_a_second\": %.3f, \"gb_a_second\": %.3f, \"wrong\": %llu%s}\n",
      each.rows,
      way_names[static_cast<std::size_t>(way)],
      line,
      static_cast<unsigned long long>(each.cache_bytes),
      static_cast<unsigned long long>(each.range_bytes),
      static_cast<unsigned long long>(row_count),
      measured.seconds.size(),
      median,
      measured.seconds.front(),
      measured.seconds.back(),
      row_count / median / 1e6,
      row_count * static_cast<double>(line) / median / 1e9,
      measured.wrong,
      more.c_str());
  std::fflush(stdout);
}

// What an array says of itself, and what it did for a gather of the measured rounds.
std::string told_of(const Words& array, const hippogriff_array_statistics& before) {
  const hippogriff_array_statistics now = array.statistics();
  return ", \"misses\": " + std::to_string((now.misses - before.misses) / rounds) +
         ", \"zero_copy_bytes\": " +
         std::to_string((now.zero_copy_bytes - before.zero_copy_bytes) / rounds) +
         ", \"explain\": " + array.explain();
}

unsigned long long measure_case(Gatherer& gatherer, const Arrays& arrays, const Case& each) {
  std::array<Measured, ways.size()> measured;
  const std::uint64_t range_rows = std::max<std::uint64_t>(each.range_bytes / gatherer.line(), 1);
  std::uint64_t salt = 0;
  const auto round = [&](bool counts) {
    gatherer.draw(range_rows, salt);
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const Way way = ways[(i + salt) % ways.size()];  // another one begins each time
      Measured& its = measured[static_cast<std::size_t>(way)];
      const double seconds = gatherer.gather(arrays, way, its.wrong);
      if (counts) {
        its.seconds.push_back(seconds);
      }
    }
    ++salt;
  };
  // As many as fill the cache with nearly all that it will have of these rows, and as let the array
  // see what kind they are of.
  const std::uint64_t filling = 4 * std::min(each.cache_bytes, each.range_bytes) / gatherer.bytes();
  for (std::uint64_t i = 0; i < std::max<std::uint64_t>(filling, warm_ups_min); ++i) {
    round(false);
  }
  const auto automatic = arrays.automatic.statistics();
  const auto cached = arrays.cached.statistics();
  for (unsigned i = 0; i < rounds; ++i) {
    round(true);
  }
  arrays.automatic.check_accesses();
  arrays.cached.check_accesses();
  const std::array told{
      told_of(arrays.automatic, automatic), told_of(arrays.cached, cached), std::string()};
  unsigned long long wrong = 0;
  for (const Way way : ways) {
    const auto place = static_cast<std::size_t>(way);
    tell(each, gatherer.line(), way, measured[place], told[place]);
    wrong += measured[place].wrong;
  }
  return wrong;
}

}  // namespace

unsigned long long measure_gathers(const Data& data, std::uint32_t queue_count) {
  const std::uint64_t size_bytes = data.values().size_bytes();
  const Data same(size_bytes);
  unsigned long long wrong = 0;
  for (const unsigned line : {512U, 4096U}) {
    Gatherer gatherer(line);
    for (const std::uint64_t cache : {std::min(small_cache, size_bytes / 8), size_bytes / 2}) {
      hippogriff::array_options options{
          .device = "cuda:0", .cache_size = cache, .line_size = line, .queue_count = queue_count};
      Words automatic(data.values(), options);
      options.load = "none";
      const Arrays arrays{std::move(automatic), Words(same.values(), options)};
      for (const Case& each :
           {Case{"random", cache, size_bytes}, Case{"again", cache, cache / 4}}) {
        wrong += measure_case(gatherer, arrays, each);
      }
    }
  }
  return wrong;
}
