// Checks arrays on a GPU: reads, writes, tiny caches, odd elements, errors. Prints a JSON line for
// each case; exit status 1 when one is wrong, 2 for a failure of the machine, 3 when a kernel hung.
// usage: array_gpu_test [FOLDER [GROUPS [CASES [TIMES]]]]: GROUPS of 256 threads in a launch at
// most, 256 if not given; few beneath compute-sanitizer, which slows every access. CASES: only
// those whose names have this in them, TIMES times, to the first that is wrong.
#define HIPPOGRIFF_COUNT_ACCESSES
#include "array_check.cuh"
#include "array_test_kernels.cuh"

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

// Of a kernel whose lanes get in each other's way: a tenth of the usual ones beneath a checker.
int rounds_here(int rounds) {
  return rounds / slowness();
}

// Beneath a checker files are read past the page cache: parts of that which a GPU is allowed to
// read while a kernel runs are out of bounds for it.
hippogriff::array_options for_gpu(hippogriff::array_options options) {
  options.device = "cuda:0";
  options.io = groups_max < 256 ? "direct" : "auto";
  options.load = options.load == nullptr ? "none" : options.load;  // lines that come are tested
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
  const int rounds = rounds_here(50);
  const double seconds = run(
      name, kernel_limit, [&] { read_random<<<groups, 256>>>(data.view(), rounds, wrong.get()); });
  data.check_accesses();
  const auto seen = data.statistics();
  // Four of five rounds read, an element from a line or two; they are counted about.
  const double asked = static_cast<double>(seen.accesses) / (groups * 256.0 * rounds * 0.8);
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
      read_by_tiles<<<at_most(groups), 256>>>(data.view(), lanes, rounds_here(20), wrong.get());
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
    get_async<<<groups, 256>>>(data.view(), rounds_here(10), wrong.get());
  });
  ask_and_go<<<groups, 256>>>(data.view(), 2);
  run(name, pending_limit, [&] {
    read_random<<<groups, 256>>>(data.view(), rounds_here(10), wrong.get());
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

void check_kept_lines(const std::string& path, const char* name) {
  if (!is_wanted(name)) {
    return;
  }
  constexpr unsigned threads = 128;
  constexpr std::uint64_t rounds = 12;
  constexpr std::uint64_t count = threads * rounds;
  write_file(path, elements<Word>(count));
  hippogriff::array_options options = for_gpu({.mode = "r+", .cache_size = 2048, .line_size = 512});
  array<Word> data(path, options);
  DeviceNumber wrong;
  run(name, kernel_limit, [&] {
    keep_two_lines<<<1, threads>>>(data.view(), rounds, 9, wrong.get());
  });
  hippogriff::flush(data);
  tell(name, wrong.read() + differences(path, elements<Word>(count, 9)));
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
  const array<Word> data(path,
                         {.device = "cuda:0", .cache_size = 1 << 20, .offset = 8, .load = "none"});
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
  check_reads<Word>(path, "reads, all loaded", {.cache_size = 1 << 25, .load = "all"});
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
  check_kept_lines(path, "two cursors a lane, a cache of four lines");
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
