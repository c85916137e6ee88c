// How fast checksums are computed, beside the memory's own speed: on the host by 1, 2, 4, …
// threads, and on cuda:0 where there is one. usage: checksum_xxh3_bench [MiB] [block KiB]
#include "checksum/device_checksum.hpp"
#include "checksum/host_checksum.hpp"
#include "device/cuda_device.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace hippogriff;  // NOLINT(google-build-using-namespace): a program
using Clock = std::chrono::steady_clock;

constexpr int rounds = 7;
constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// The median of some rounds, in bytes a nanosecond.
template <typename Work>
double gb_per_second(std::uint64_t bytes, Work&& work) {
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = Clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::ranges::nth_element(seconds, seconds.begin() + rounds / 2);
  return static_cast<double>(bytes) / seconds[rounds / 2] / 1e9;
}

// Reads all of it by `threads` threads and adds it up: what a hash of no cost would take.
void read_memory(const std::vector<std::uint64_t>& words, unsigned threads) {
  static std::atomic<std::uint64_t> total{0};
  std::vector<std::jthread> others;
  for (unsigned thread = 0; thread < threads; ++thread) {
    others.emplace_back([&words, thread, threads] {
      const std::size_t share = words.size() / threads;
      std::uint64_t sum = 0;
      for (std::size_t index = 0; index < share; ++index) {
        sum += words[thread * share + index];
      }
      total += sum;
    });
  }
}

void measure_host(std::uint64_t bytes, std::uint64_t block_bytes) {
  std::vector<std::uint64_t> words(bytes / 8);
  for (std::size_t index = 0; index < words.size(); ++index) {
    words[index] = index * 0x9E3779B97F4A7C15;
  }
  const std::vector<MemoryPart> parts{{{reinterpret_cast<std::uintptr_t>(words.data())}, bytes}};
  std::vector<std::uint64_t> checksums(count_blocks(parts, block_bytes));
  for (unsigned threads = 1; threads <= std::thread::hardware_concurrency(); threads *= 2) {
    const double hash =
        gb_per_second(bytes, [&] { checksum_host_memory(parts, block_bytes, threads, checksums); });
    const double read = gb_per_second(bytes, [&] { read_memory(words, threads); });
    std::printf("host, %2u threads: %7.1f GB/s; reading alone %7.1f\n", threads, hash, read);
  }
}

// All of some device memory, and parts of it.
void measure_device_memory(Device& device,
                           DeviceChecksum& checksum,
                           const MemoryPart& memory,
                           std::uint64_t block_bytes) {
  const bool odd = memory.address.value % 8 != 0;
  for (std::uint64_t bytes = memory.size_bytes; bytes >= memory.size_bytes / 16; bytes /= 4) {
    const std::vector<MemoryPart> parts{{memory.address, bytes}};
    std::vector<std::uint64_t> checksums(count_blocks(parts, block_bytes));
    const auto work = [&] { checksum.compute(parts, block_bytes, nullptr, 1, checksums); };
    work();
    std::printf("%s, %5llu MiB%s: %7.1f GB/s\n",
                device.info().name.c_str(),
                static_cast<unsigned long long>(bytes / mib),
                odd ? " at an odd address" : "",
                gb_per_second(bytes, work));
  }
}

void measure_cuda(std::uint64_t bytes, std::uint64_t block_bytes) {
  if (cuda_presence().device_count == 0) {
    std::printf("cuda:0: skipped: %s\n", cuda_presence().why_not.c_str());
    return;
  }
  const auto device = make_cuda_device(0);
  const DeviceScope scope(*device);
  const DeviceAddress memory = device->allocate(bytes + 8);
  {
    DeviceChecksum checksum(device, std::chrono::seconds(60));
    measure_device_memory(*device, checksum, {memory, bytes}, block_bytes);
    measure_device_memory(*device, checksum, {memory + 1, bytes}, block_bytes);
    const std::string why_copied = checksum.why_copied();
    std::printf("cuda:0 is %s; its memory was hashed %s\n",
                device->info().model.c_str(),
                why_copied.empty() ? "by the kernel" : ("on the host: " + why_copied).c_str());
  }
  device->release(memory);
}

}  // namespace

int main(int count, char** arguments) {
  const std::uint64_t bytes = (count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1024) * mib;
  const std::uint64_t block_bytes =
      (count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 256) * 1024;
  if (bytes == 0 || block_bytes == 0) {
    std::fputs("usage: checksum_xxh3_bench [MiB] [block KiB]\n", stderr);
    return 2;
  }
  std::printf("blocks of %llu KiB, medians of %d\n",
              static_cast<unsigned long long>(block_bytes / 1024),
              rounds);
  measure_host(bytes, block_bytes);
  measure_cuda(bytes, block_bytes);
  return 0;
}
