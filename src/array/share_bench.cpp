// What processes get of a drive that they read at random past the page cache, each by as many
// threads as said, a line of 4 KiB at a time: alone, then all together.
// usage: array_share_bench FILE SECONDS THREADS...   (a process for each THREADS)
#include <hippogriff/array.hpp>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <random>
#include <span>
#include <thread>
#include <vector>

namespace {

using Line = std::array<std::byte, 4096>;

constexpr std::size_t processes_max = 16;
constexpr std::chrono::milliseconds warm_up{1500};

// Lines that each process has read, in memory that all of them have.
using Counts = std::array<std::atomic<std::uint64_t>, processes_max>;

void read_for_ever(const char* file, int threads, std::atomic<std::uint64_t>& count) {
  const hippogriff::array<Line> array(
      file,
      {.device = "host", .cache_size = std::size_t{16} << 20, .line_size = 4096, .io = "direct"});
  std::vector<std::jthread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, view = array.view()] {
      std::mt19937_64 random{std::random_device{}()};
      std::uniform_int_distribution<std::uint64_t> any(0, view.size() - 1);
      Line line;
      for (;;) {
        line = view[any(random)];
        count.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
}

// Lines a second of each of these processes while all of them run.
std::vector<double> rates(const char* file,
                          std::chrono::seconds time,
                          std::span<const int> threads,
                          Counts& counts) {
  std::vector<pid_t> children;
  for (std::size_t index = 0; index < threads.size(); ++index) {
    counts.at(index) = 0;
    children.push_back(::fork());
    if (children.back() == 0) {
      try {
        read_for_ever(file, threads[index], counts.at(index));
      } catch (const std::exception& error) {
        static_cast<void>(std::fprintf(stderr, "array_share_bench: %s\n", error.what()));
      }
      ::_exit(1);
    }
  }
  std::this_thread::sleep_for(warm_up);
  std::vector<std::uint64_t> before;
  for (std::size_t index = 0; index < threads.size(); ++index) {
    before.push_back(counts.at(index));
  }
  std::this_thread::sleep_for(time);
  std::vector<double> results;
  for (std::size_t index = 0; index < threads.size(); ++index) {
    results.push_back(static_cast<double>(counts.at(index) - before[index]) /
                      static_cast<double>(time.count()));
  }
  for (const pid_t child : children) {
    static_cast<void>(::kill(child, SIGKILL));
    static_cast<void>(::waitpid(child, nullptr, 0));
  }
  return results;
}

void measure(const char* file, std::chrono::seconds time, std::span<const int> threads) {
  void* const memory =
      ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  Counts& counts = *new (memory) Counts{};
  std::printf("%8s %12s %12s\n", "threads", "alone", "together");
  std::vector<double> alone;
  for (std::size_t index = 0; index < threads.size(); ++index) {
    alone.push_back(rates(file, time, threads.subspan(index, 1), counts)[0]);
  }
  const std::vector<double> together = rates(file, time, threads, counts);
  for (std::size_t index = 0; index < threads.size(); ++index) {
    std::printf("%8d %12.0f %12.0f\n", threads[index], alone[index], together[index]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> numbers;
  for (const char* argument : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
    numbers.push_back(static_cast<int>(std::strtol(argument, nullptr, 10)));
  }
  if (numbers.size() < 3 || numbers.size() > processes_max + 2 ||
      std::ranges::any_of(numbers.begin() + 1, numbers.end(), [](int each) { return each < 1; })) {
    static_cast<void>(std::fputs("usage: array_share_bench FILE SECONDS THREADS...\n", stderr));
    return 2;
  }
  try {
    measure(argv[1], std::chrono::seconds(numbers[1]), std::span(numbers).subspan(2));
  } catch (const std::exception& error) {
    static_cast<void>(std::fprintf(stderr, "array_share_bench: %s\n", error.what()));
    return 1;
  }
  return 0;
}
