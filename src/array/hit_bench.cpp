// What an access costs whose line is in the cache, by CPU threads: plain, and through a cursor.
// usage: array_hit_bench [ELEMENTS [MILLISECONDS]]
#include <hippogriff/array.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <thread>
#include <vector>

namespace {

using Word = std::uint64_t;
using Clock = std::chrono::steady_clock;

constexpr int rounds = 9;

// Nanoseconds an access of this thread took, by calling `thousand` again and again.
template <typename Thousand>
double timed(std::size_t thread, std::chrono::milliseconds time, Thousand& thousand) {
  const auto begin = Clock::now();
  std::uint64_t done = 0;
  while (Clock::now() - begin < time) {
    thousand(thread);
    done += 1000;
  }
  const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
  return took.count() / static_cast<double>(done);
}

// The median of some rounds, of the slowest thread.
template <typename Thousand>
double nanoseconds(std::size_t threads, std::chrono::milliseconds time, Thousand thousand) {
  std::vector<double> results;
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> each(threads);
    std::vector<std::jthread> running;
    for (std::size_t thread = 0; thread < threads; ++thread) {
      running.emplace_back([&, thread] { each[thread] = timed(thread, time, thousand); });
    }
    running.clear();
    results.push_back(*std::ranges::max_element(each));
  }
  std::ranges::nth_element(results, results.begin() + rounds / 2);
  return results[rounds / 2];
}

Word measure(std::uint64_t count, std::chrono::milliseconds time) {
  std::vector<Word> memory(count, 1);
  const hippogriff::array<Word> array(std::span<Word>(memory),
                                      {.device = "host", .cache_size = 16 * count * sizeof(Word)});
  const auto view = array.view();
  std::vector<Word> sums(64);
  for (std::uint64_t i = 0; i < count; ++i) {
    sums[0] += view[i];
  }
  for (const std::size_t threads : {1U, 2U}) {
    const double plain = nanoseconds(threads, time, [&](std::size_t thread) {
      std::uint64_t at = thread;
      for (int i = 0; i < 1000; ++i) {
        at = (at * 2862933555777941757U + 3037000493U) % count;
        sums[8 * thread] += view[at];
      }
    });
    const double kept = nanoseconds(threads, time, [&](std::size_t thread) {
      hippogriff::array_cursor<Word> cursor(view);
      for (std::uint64_t i = 0; i < 1000; ++i) {
        sums[8 * thread] += cursor[i % count];
      }
    });
    std::printf(
        "{\"threads\": %zu, \"elements\": %llu, \"plain_ns\": %.2f, \"cursor_ns\": %.2f, "
        "\"misses\": %llu}\n",
        threads,
        static_cast<unsigned long long>(count),
        plain,
        kept,
        static_cast<unsigned long long>(array.statistics().misses));
  }
  return sums[0];
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::uint64_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 16384;
    const std::chrono::milliseconds time(argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 100);
    return measure(count, time) == 0 ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "array_hit_bench: %s\n", error.what());
    return 1;
  }
}
