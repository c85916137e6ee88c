// Blocks shared out among threads.
#include "checksum/host_checksum.hpp"

#include "checksum/xxh3_host.hpp"

#include <algorithm>
#include <array>
#include <system_error>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

// A thread begins in some 30 us, in which another hashes half of this.
constexpr std::uint64_t bytes_per_thread = std::uint64_t{2} << 20;
// What a thread takes at a time: much work beside the lock, and little for the last to wait for.
constexpr std::uint64_t claim_bytes = std::uint64_t{1} << 20;
constexpr std::size_t claim_blocks = 256;

void work_through(BlockQueue& queue, std::span<std::uint64_t> checksums) noexcept {
  std::array<MemoryPart, claim_blocks> blocks;
  while (true) {
    const ClaimedBlocks claimed = queue.claim(blocks, claim_bytes);
    if (claimed.count == 0) {
      return;
    }
    for (std::size_t index = 0; index < claimed.count; ++index) {
      const MemoryPart& block = blocks[index];
      const auto* bytes =
          reinterpret_cast<const void*>(block.address.value);  // NOLINT(performance-no-int-to-ptr)
      checksums[claimed.first + index] = xxh3_of(bytes, block.size_bytes);
    }
  }
}

// False when the machine has no more threads: those there are do it then.
bool start_one(std::vector<std::jthread>& threads,
               BlockQueue& queue,
               std::span<std::uint64_t> checksums) {
  try {
    threads.emplace_back([&queue, checksums] { work_through(queue, checksums); });
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace

void checksum_host_memory(std::span<const MemoryPart> parts,
                          std::uint64_t block_bytes,
                          unsigned threads_max,
                          std::span<std::uint64_t> checksums) {
  std::uint64_t bytes = 0;
  for (const MemoryPart& part : parts) {
    bytes += part.size_bytes;
  }
  const auto threads = std::min<std::uint64_t>(
      {threads_max, bytes / bytes_per_thread, static_cast<std::uint64_t>(checksums.size())});
  BlockQueue queue(parts, block_bytes);
  std::vector<std::jthread> others;
  while (others.size() + 1 < threads && start_one(others, queue, checksums)) {
  }
  work_through(queue, checksums);
}

}  // namespace hippogriff
