// Checks arrays on a GPU: reads, writes, tiny caches, odd elements, errors. Prints a JSON line for
// each case; exit status 1 when one is wrong, 2 for a failure of the machine, 3 when a kernel hung.
// usage: array_gpu_test [FOLDER [GROUPS [CASES [TIMES]]]]: GROUPS of 256 threads in a launch at
// most, 256 if not given; few beneath compute-sanitizer, which slows every access. CASES: only
// those whose names have this in them, TIMES times, to the first that is wrong.
#define HIPPOGRIFF_COUNT_ACCESSES
#include "array_check.cuh"

#include <hippogriff/array.cuh>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace {

using hippogriff::array;
using hippogriff::array_cursor;
using hippogriff::array_view;
using hippogriff::ondemand::Lanes;
using hippogriff::ondemand::NvmeStatus;

constexpr double kernel_limit = 60;
constexpr double pending_limit = 18;  // more than the arrays' own limit
unsigned groups_max = 256;  // of threads in a launch: few where a checker slows every access
std::string wanted_cases;   // part of their names
int wrong_cases = 0;

bool is_wanted(const char* name) {
  return std::string(name).find(wanted_cases) != std::string::npos;
}

unsigned at_most(unsigned groups) {
  return groups < groups_max ? groups : groups_max;
}

// How many times as long as usual a wait may take: more beneath a checker.
int slowness() {
  return groups_max < 256 ? 10 : 1;
}

// Of accesses in a kernel whose lanes get in each other's way: fewer beneath a checker.
int rounds_at_most(int rounds) {
  return rounds / slowness();
}

// Beneath a checker files are read past the page cache: parts of that which a GPU is allowed to
// read while a kernel runs are out of bounds for it.
hippogriff::array_options for_gpu(hippogriff::array_options options) {
  options.device = "cuda:0";
  options.io = groups_max < 256 ? "direct" : "auto";
  return options;
}

template <typename Launch>
double run(const char* what, double limit, Launch launch) {
  return timed(what, slowness() * limit, launch);
}

void tell(const char* name, unsigned long long wrong, const std::string& more = {}) {
  std::printf("{\"case\": \"%s\", \"wrong\": %llu%s}\n", name, wrong, more.c_str());
  std::fflush(stdout);
  wrong_cases += wrong == 0 ? 0 : 1;
}

struct Odd {  // 12 bytes: straddles lines
  std::uint32_t parts[3];

  __host__ __device__ static Odd of(std::uint64_t index) {
    const std::uint64_t bits = mixed(index);
    return {{static_cast<std::uint32_t>(bits),
             static_cast<std::uint32_t>(bits >> 32U),
             static_cast<std::uint32_t>(index)}};
  }

  __host__ __device__ bool operator==(const Odd& other) const {
    return parts[0] == other.parts[0] && parts[1] == other.parts[1] && parts[2] == other.parts[2];
  }
};

struct Word {
  std::uint64_t bits;

  __host__ __device__ static Word of(std::uint64_t index) { return {mixed(index + 99)}; }

  __host__ __device__ bool operator==(const Word& other) const { return bits == other.bits; }
};

__device__ std::uint64_t thread_number() {
  return static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ std::uint64_t thread_count() {
  return static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
}

// Every thread reads elements at random, in divergent flow.
template <typename T>
__global__ void read_random(array_view<T> view, int rounds, unsigned long long* wrong) {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t pick = mixed(thread_number() * 1000 + static_cast<std::uint64_t>(round));
    if (pick % 5 == 0) {
      continue;
    }
    const std::uint64_t index = (pick >> 8U) % view.size();
    if (!(view[index] == T::of(index))) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

// Has two numbers in one set, by a loop that each lane leaves when it is done.
__device__ void join(unsigned* parents, unsigned one, unsigned other) {
  auto* const seen = static_cast<volatile unsigned*>(parents);
  unsigned mine = seen[one];
  unsigned theirs = seen[other];
  while (mine != theirs) {
    const unsigned above = mine < theirs ? theirs : mine;
    const unsigned below = mine < theirs ? mine : theirs;
    const unsigned parent = seen[above];
    if (parent == below || (parent == above && atomicCAS(parents + above, above, below) == above)) {
      return;
    }
    mine = seen[seen[above]];
    theirs = seen[below];
  }
}

// Lanes part between accesses, each for as long as it takes, and all meet in the end: groups of
// lanes that happen to be together must not get in each other's way.
template <typename T>
__global__ void read_and_part(array_view<T> view, unsigned* parents, unsigned long long* wrong) {
  const std::uint64_t number = thread_number();
  const unsigned reads = mixed(number) % 3;
  for (unsigned read = 0; read < reads; ++read) {
    const std::uint64_t index = (number * 16 + read) % view.size();
    const T value = view[index];
    if (!(value == T::of(index))) {
      atomicAdd(wrong, 1ULL);
    }
    join(parents,
         static_cast<unsigned>(number),
         static_cast<unsigned>(mixed(index) % thread_count()));
  }
  if (__ballot_sync(~0U, 1) != ~0U) {
    atomicAdd(wrong, 1ULL);
  }
}

// Tiles of a warp side by side, some of them at the same line: one waits for what another has
// claimed.
template <typename T>
__global__ void read_by_tiles(array_view<T> view,
                              unsigned lanes,
                              int rounds,
                              unsigned long long* wrong) {
  constexpr std::uint64_t part = 16;
  __shared__ std::uint64_t memory[256][part * sizeof(T) / sizeof(std::uint64_t)];
  const unsigned lane = threadIdx.x % 32;
  const Lanes tile(((~0U >> (32 - lanes)) << (lane / lanes * lanes)));
  T* const mine = reinterpret_cast<T*>(memory[threadIdx.x / lanes]);
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t together = mixed(thread_number() / 32 * 1000 + round);
    const std::uint64_t apart = mixed(thread_number() / lanes * 77 + round);
    const std::uint64_t first = (together % 4 == 0 ? apart : together) % (view.size() - part);
    const bool good = view.read_range(tile, first, part, mine) == NvmeStatus::success;
    tile.meet();
    for (std::uint64_t i = tile.rank(); i < part; i += tile.size()) {
      if (!good || !(mine[i] == T::of(first + i))) {
        atomicAdd(wrong, 1ULL);
      }
    }
    tile.meet();
  }
}

// Every thread writes its own elements: neighbours are other threads'.
template <typename T>
__global__ void write_own(array_view<T> view, std::uint64_t shift, unsigned long long* wrong) {
  for (std::uint64_t i = thread_number(); i < view.size(); i += thread_count()) {
    if (view.write(i, T::of(i + shift)) != NvmeStatus::success) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

// Every thread asks for elements and goes away; some ask by warps for ranges.
template <typename T>
__global__ void ask_and_go(array_view<T> view, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t pick = mixed(thread_number() * 77 + static_cast<std::uint64_t>(round));
    if (pick % 3 != 0) {
      view.prefetch((pick >> 8U) % view.size());
    }
    __syncwarp();
    view.prefetch_range(Lanes::warp(), thread_number() / 32 * 5000 % view.size(), 4000);
  }
}

// Every thread asks for three elements, drops one, and waits for the others in another order.
template <typename T>
__global__ void get_async(array_view<T> view, int rounds, unsigned long long* wrong) {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t pick = mixed(thread_number() * 991 + static_cast<std::uint64_t>(round));
    const auto first = view.get_async(pick % view.size());
    const auto second = view.get_async((pick >> 9U) % view.size());
    static_cast<void>(view.get_async((pick >> 18U) % view.size()));
    T value{};
    const bool good = second.value() == T::of(second.index()) &&
                      first.wait(value) == NvmeStatus::success && value == T::of(first.index());
    if (!good) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

// Every thread writes its own elements, asks for what it writes next, and reads again what it wrote
// a while ago: by then its line has been written to the file, or is being written.
template <typename T>
__global__ void write_and_read(array_view<T> view, std::uint64_t shift, unsigned long long* wrong) {
  for (std::uint64_t i = thread_number(); i < view.size(); i += thread_count()) {
    bool good = view.write(i, T::of(i + shift)) == NvmeStatus::success;
    view.prefetch(i + thread_count());
    if (i >= 2 * thread_count()) {
      const std::uint64_t before = i - 2 * thread_count();
      good = view[before] == T::of(before + shift) && good;
    }
    if (!good) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

template <typename T>
__global__ void read_by_cursor(array_view<T> view, std::uint64_t each, unsigned long long* wrong) {
  array_cursor<T> cursor(view);
  const std::uint64_t begin = thread_number() * each;
  for (std::uint64_t i = begin; i < begin + each && i < view.size(); ++i) {
    if (!(cursor[i] == T::of(i))) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

// The lanes of a warp beside each other, some of which look before they write.
template <typename T>
__global__ void write_by_cursor(array_view<T> view,
                                std::uint64_t shift,
                                unsigned long long* wrong) {
  array_cursor<T> cursor(view);
  for (std::uint64_t i = thread_number(); i < view.size(); i += thread_count()) {
    bool good = mixed(i) % 3 != 0 || cursor[i] == T::of(i);
    good = cursor.write(i, T::of(i + shift)) == NvmeStatus::success && good;
    if (!good || !(cursor[i] == T::of(i + shift))) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

// A warp a part of 1024 numbers; output lines are written as a whole.
__global__ void add_vectors(array_view<std::uint64_t> a,
                            array_view<std::uint64_t> b,
                            array_view<std::uint64_t> sum,
                            unsigned long long* wrong) {
  constexpr std::uint64_t part = 1024;
  extern __shared__ std::uint64_t memory[];
  std::uint64_t* first = memory + threadIdx.x / 32 * 2 * part;
  std::uint64_t* second = first + part;
  const Lanes warp = Lanes::warp();
  for (std::uint64_t begin = thread_number() / 32 * part; begin < sum.size();
       begin += thread_count() / 32 * part) {
    const std::uint64_t count = sum.size() - begin < part ? sum.size() - begin : part;
    bool good = a.read_range(warp, begin, count, first) == NvmeStatus::success;
    good = b.read_range(warp, begin, count, second) == NvmeStatus::success && good;
    warp.meet();
    for (std::uint64_t i = warp.rank(); i < count; i += 32) {
      first[i] += second[i];
    }
    warp.meet();
    good = sum.write_range(warp, begin, count, first) == NvmeStatus::success && good;
    if (!good && warp.leads()) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

__global__ void read_status(array_view<Word> view,
                            std::uint64_t index,
                            unsigned long long* failed) {
  Word value{};
  if (view.read(index, value) != NvmeStatus::success) {
    atomicAdd(failed, 1ULL);
  }
}

template <typename T>
std::vector<T> elements(std::uint64_t count, std::uint64_t shift = 0) {
  std::vector<T> values(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    values[i] = T::of(i + shift);
  }
  return values;
}

template <typename T>
void write_file(const std::string& path, const std::vector<T>& values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

template <typename T>
unsigned long long differences(const std::string& path, const std::vector<T>& expected) {
  std::vector<T> there(expected.size());
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(there.data()),
            static_cast<std::streamsize>(there.size() * sizeof(T)));
  unsigned long long wrong = 0;
  for (std::size_t i = 0; i < there.size(); ++i) {
    wrong += there[i] == expected[i] ? 0 : 1;
  }
  return wrong;
}

// `groups` of 256 threads; few where they get on one after the other.
template <typename T>
void check_reads(const std::string& path,
                 const char* name,
                 hippogriff::array_options options,
                 unsigned groups = 256) {
  if (!is_wanted(name)) {
    return;
  }
  // With an offset: what stands before counts back from zero.
  const std::uint64_t before = options.offset / sizeof(T);
  write_file(path, elements<T>(1'000'003 + before, 0 - before));
  options = for_gpu(options);
  options.wait_limit = slowness() * std::chrono::seconds(30);
  const array<T> data(path, options);
  groups = at_most(groups);
  DeviceNumber wrong;
  const double seconds = run(name, kernel_limit, [&] {
    read_random<<<groups, 256>>>(data.view(), rounds_at_most(50), wrong.get());
  });
  data.check_accesses();
  const auto seen = data.statistics();
  // Four of five rounds read, an element from a line or two; they are counted about.
  const double asked = static_cast<double>(seen.accesses) / (groups * 256.0 * 50 * 0.8);
  const bool counted = groups < 256 || (asked > 0.9 && asked < 2.1);
  tell(name,
       wrong.read() + (counted ? 0 : 1),
       ", \"seconds\": " + std::to_string(seconds) + ", \"misses\": " +
           std::to_string(seen.misses) + ", \"accesses\": " + std::to_string(seen.accesses));
}

template <typename T>
void check_parting(const std::string& path, const char* name, hippogriff::array_options options) {
  if (!is_wanted(name)) {
    return;
  }
  const unsigned threads = at_most(4096) * 256;
  write_file(path, elements<T>(16ULL * threads));
  options = for_gpu(options);
  options.wait_limit = slowness() * std::chrono::seconds(30);
  const array<T> data(path, options);
  unsigned* parents = nullptr;
  check_cuda(cudaMalloc(&parents, threads * sizeof(unsigned)), name);
  std::vector<unsigned> own(threads);
  std::iota(own.begin(), own.end(), 0U);
  DeviceNumber wrong;
  for (int round = 0; round < 5; ++round) {
    check_cuda(cudaMemcpy(parents, own.data(), threads * sizeof(unsigned), cudaMemcpyHostToDevice),
               name);
    run(name, kernel_limit, [&] {
      read_and_part<<<threads / 256, 256>>>(data.view(), parents, wrong.get());
    });
  }
  data.check_accesses();
  check_cuda(cudaFree(parents), name);
  tell(name, wrong.read());
}

template <typename T>
void check_tiles(const std::string& path,
                 const char* name,
                 hippogriff::array_options options,
                 unsigned groups = 256) {
  if (!is_wanted(name)) {
    return;
  }
  write_file(path, elements<T>(1'000'003));
  options = for_gpu(options);
  options.wait_limit = slowness() * std::chrono::seconds(30);
  const array<T> data(path, options);
  DeviceNumber wrong;
  for (const unsigned lanes : {16U, 8U, 1U}) {
    run(name, kernel_limit, [&] {
      read_by_tiles<<<at_most(groups), 256>>>(data.view(), lanes, rounds_at_most(20), wrong.get());
    });
  }
  data.check_accesses();
  tell(name, wrong.read());
}

template <typename T>
void check_writes(const std::string& path, const char* name, hippogriff::array_options options) {
  if (!is_wanted(name)) {
    return;
  }
  constexpr std::uint64_t count = 300'007;
  write_file(path, elements<T>(count));
  options = for_gpu(options);
  options.mode = "r+";
  options.wait_limit = slowness() * std::chrono::seconds(30);
  array<T> data(path, options);
  DeviceNumber wrong;
  run(name, kernel_limit, [&] { write_own<<<at_most(128), 256>>>(data.view(), 5, wrong.get()); });
  hippogriff::flush(data);
  tell(name, wrong.read() + differences(path, elements<T>(count, 5)));
}

// `groups` of 256 threads ask and go, then others get, then others read.
void check_pending(const std::string& path,
                   const char* name,
                   hippogriff::array_options options,
                   unsigned groups) {
  if (!is_wanted(name)) {
    return;
  }
  groups = at_most(groups);
  write_file(path, elements<Word>(300'007));
  options = for_gpu(options);
  options.wait_limit = slowness() * std::chrono::seconds(10);
  const array<Word> data(path, options);
  DeviceNumber wrong;
  const double asked =
      run(name, pending_limit, [&] { ask_and_go<<<groups, 256>>>(data.view(), 4); });
  const auto before = data.statistics();
  const double got = run(name, pending_limit, [&] {
    get_async<<<groups, 256>>>(data.view(), rounds_at_most(10), wrong.get());
  });
  ask_and_go<<<groups, 256>>>(data.view(), 2);
  run(name, pending_limit, [&] {
    read_random<<<groups, 256>>>(data.view(), rounds_at_most(10), wrong.get());
  });
  data.check_accesses();
  tell(name,
       wrong.read() + (before.misses != 0 ? 0 : 1),
       ", \"seconds to ask\": " + std::to_string(asked) + ", \"lines asked for\": " +
           std::to_string(before.misses) + ", \"seconds to get\": " + std::to_string(got));
}

void check_write_back(const std::string& path,
                      const char* name,
                      hippogriff::array_options options,
                      unsigned groups) {
  if (!is_wanted(name)) {
    return;
  }
  constexpr std::uint64_t count = 100'003;
  groups = at_most(groups);
  write_file(path, elements<Word>(count));
  options = for_gpu(options);
  options.mode = "r+";
  options.wait_limit = slowness() * std::chrono::seconds(10);
  array<Word> data(path, options);
  DeviceNumber wrong;
  const double seconds = run(
      name, pending_limit, [&] { write_and_read<<<groups, 256>>>(data.view(), 5, wrong.get()); });
  const auto seen = data.statistics();
  hippogriff::flush(data);
  tell(name,
       wrong.read() + differences(path, elements<Word>(count, 5)),
       ", \"seconds\": " + std::to_string(seconds) +
           ", \"lines written before the flush\": " + std::to_string(seen.writes));
}

template <typename T>
void check_cursor(const std::string& path,
                  const char* name,
                  hippogriff::array_options options,
                  unsigned groups = 128) {
  if (!is_wanted(name)) {
    return;
  }
  constexpr std::uint64_t count = 500'000;
  groups = std::min(groups, groups_max);
  write_file(path, elements<T>(count));
  options = for_gpu(options);
  options.mode = "r+";
  array<T> data(path, options);
  DeviceNumber wrong;
  run(name, kernel_limit, [&] { read_by_cursor<<<groups, 128>>>(data.view(), 31, wrong.get()); });
  run(name, kernel_limit, [&] { write_by_cursor<<<groups, 128>>>(data.view(), 7, wrong.get()); });
  hippogriff::flush(data);
  tell(name, wrong.read() + differences(path, elements<T>(count, 7)));
}

void check_vectors() {
  if (!is_wanted("vector add")) {
    return;
  }
  constexpr std::uint64_t count = (1 << 21) + 77;
  std::vector<std::uint64_t> a(count);
  std::vector<std::uint64_t> b(count);
  std::vector<std::uint64_t> sum(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    a[i] = mixed(i);
    b[i] = mixed(i + count);
  }
  const hippogriff::array_options read{.device = "cuda:0", .cache_size = 1 << 21};
  const hippogriff::array_options write{.mode = "r+", .device = "cuda:0", .cache_size = 1 << 20};
  const array<std::uint64_t> first(std::span<std::uint64_t>(a), read);
  const array<std::uint64_t> second(std::span<std::uint64_t>(b), read);
  array<std::uint64_t> result(std::span<std::uint64_t>(sum), write);
  DeviceNumber wrong;
  constexpr unsigned shared = 2 * 2 * 1024 * sizeof(std::uint64_t);
  const double seconds = run("vector add", kernel_limit, [&] {
    add_vectors<<<at_most(256), 64, shared>>>(
        first.view(), second.view(), result.view(), wrong.get());
  });
  hippogriff::flush(result);
  unsigned long long different = wrong.read();
  for (std::uint64_t i = 0; i < count; ++i) {
    different += sum[i] == a[i] + b[i] ? 0 : 1;
  }
  tell("vector add",
       different,
       ", \"seconds\": " + std::to_string(seconds) + ", \"lines read before they were written\": " +
           std::to_string(result.statistics().reads));
}

void check_errors(const std::string& path) {
  if (!is_wanted("truncated file") && !is_wanted("index beyond the end")) {
    return;
  }
  write_file(path, elements<Word>(100'000));
  // Held in the page cache and mapped the bytes would stay: an odd offset keeps it from being
  // mapped.
  const array<Word> data(path, {.device = "cuda:0", .cache_size = 1 << 20, .offset = 8});
  std::filesystem::resize_file(path, 4096);
  DeviceNumber failed;
  run("truncated file", kernel_limit, [&] {
    read_status<<<4, 64>>>(data.view(), 50'000, failed.get());
  });
  bool told = false;
  try {
    data.check_accesses();
  } catch (const hippogriff::TransferError& error) {
    told = error.status() == HIPPOGRIFF_SHORT_FILE;
  }
  tell("truncated file", (failed.read() == 256 ? 0 : 1) + (told ? 0 : 1));
  failed.reset();
  run("index beyond the end", kernel_limit, [&] {
    read_status<<<1, 32>>>(data.view(), ~0ULL, failed.get());
  });
  tell("index beyond the end", failed.read() == 32 ? 0 : 1);
}

void check_all(const std::string& folder) {
  const std::string path = folder + "/array_gpu_test.bin";
  check_reads<Word>(path, "reads, 512 B lines", {.cache_size = 1 << 20, .line_size = 512});
  check_reads<Word>(path, "reads, 4 KiB lines", {.cache_size = 1 << 21});
  check_reads<Word>(path, "reads, 64 KiB lines", {.cache_size = 1 << 22, .line_size = 1 << 16});
  check_reads<Word>(path, "reads, all fits", {.cache_size = 1 << 25});
  check_reads<Word>(path, "reads, a cache of one line", {.cache_size = 512, .line_size = 512}, 4);
  check_reads<Word>(path, "reads, a cache of eight lines", {.cache_size = 32768}, 16);
  check_reads<Word>(path, "reads, through staging memory", {.cache_size = 1 << 20, .offset = 512});
  check_reads<Odd>(path, "reads of odd elements", {.cache_size = 1 << 20, .line_size = 512});
  check_reads<Word>(path,
                    "reads, one short queue",
                    {.cache_size = 1 << 20, .queue_count = 1, .queue_depth = 4},
                    16);
  check_parting<Word>(path, "lanes part", {.cache_size = 1 << 24});
  check_parting<Word>(path, "lanes part, a small cache", {.cache_size = 1 << 15, .line_size = 512});
  check_parting<Odd>(path, "lanes part, odd elements", {.cache_size = 1 << 24});
  check_tiles<Word>(path, "ranges by tiles", {.cache_size = 1 << 20, .line_size = 512});
  check_tiles<Word>(path, "ranges by tiles, a cache of eight lines", {.cache_size = 32768}, 8);
  check_writes<Word>(path, "writes", {.cache_size = 1 << 18, .line_size = 512});
  check_writes<Word>(
      path, "writes, a cache of eight lines", {.cache_size = 4096, .line_size = 512});
  check_writes<Odd>(path, "writes of odd elements", {.cache_size = 1 << 20});
  check_pending(path, "asked ahead", {.cache_size = 1 << 20, .line_size = 512}, 128);
  check_pending(path, "asked ahead, all fits", {.cache_size = 1 << 23}, 128);
  check_pending(path, "asked ahead, a cache of one line", {.cache_size = 512, .line_size = 512}, 1);
  check_pending(path, "asked ahead, a cache of eight lines", {.cache_size = 32768}, 2);
  check_pending(path,
                "asked ahead, short queues",
                {.cache_size = 1 << 20, .line_size = 512, .queue_count = 1, .queue_depth = 4},
                4);
  check_write_back(path, "written behind", {.cache_size = 1 << 18, .line_size = 512}, 64);
  check_write_back(
      path, "written behind, a cache of eight lines", {.cache_size = 4096, .line_size = 512}, 2);
  check_write_back(path,
                   "written behind, short queues",
                   {.cache_size = 1 << 16, .line_size = 512, .queue_count = 1, .queue_depth = 4},
                   4);
  check_cursor<Word>(path, "cursor", {.cache_size = 1 << 20, .line_size = 512});
  check_cursor<Word>(path, "cursor, a cache of eight lines", {.cache_size = 32768}, 2);
  check_cursor<Odd>(path, "cursor of odd elements", {.cache_size = 1 << 20, .line_size = 512});
  check_vectors();
  check_errors(path);
  std::filesystem::remove(path);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    groups_max = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : groups_max;
    wanted_cases = argc > 3 ? argv[3] : "";
    const unsigned long times = argc > 4 ? std::strtoul(argv[4], nullptr, 10) : 1;
    const std::string folder = argc > 1 ? argv[1] : std::filesystem::temp_directory_path().string();
    for (unsigned long time = 0; time < times && wrong_cases == 0; ++time) {
      check_all(folder);
    }
  } catch (const std::exception& error) {
    std::printf("{\"error\": \"%s\"}\n", error.what());
    return 2;
  }
  std::printf("{\"wrong_cases\": %d}\n", wrong_cases);
  return wrong_cases == 0 ? 0 : 1;
}
