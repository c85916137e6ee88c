// Which blocks a piece completes.
#include "checksum/landing_checksums.hpp"

#include "base/error.hpp"
#include "checksum/xxh3_host.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace hippogriff {

LandingChecksums::LandingChecksums(std::vector<LandingPart> parts,
                                   std::uint64_t block_bytes,
                                   std::span<std::uint64_t> checksums)
    : parts_(std::move(parts)), block_bytes_(block_bytes), checksums_(checksums) {
  std::uint64_t count = 0;
  std::uint64_t end = 0;
  first_blocks_.reserve(parts_.size());
  for (const LandingPart& part : parts_) {
    if (part.offset < end || part.offset > INT64_MAX - part.memory.size_bytes) {
      throw_invalid("compute checksums", "the parts do not ascend in the file");
    }
    end = part.offset + part.memory.size_bytes;
    first_blocks_.push_back(count);
    count += count_blocks(std::span(&part.memory, 1), block_bytes);
  }
  if (count != checksums.size()) {
    throw_invalid("compute checksums",
                  "there are " + std::to_string(count) + " blocks, and room for " +
                      std::to_string(checksums.size()) + " checksums");
  }
  landed_bytes_ = std::make_unique<std::atomic<std::uint64_t>[]>(count);
}

// The first that ends behind it.
std::size_t LandingChecksums::first_part_behind(std::uint64_t offset) const noexcept {
  const auto part = std::ranges::upper_bound(parts_, offset, {}, [](const LandingPart& one) {
    return one.offset + one.memory.size_bytes;
  });
  return static_cast<std::size_t>(part - parts_.begin());
}

void LandingChecksums::landed(Range range) noexcept {
  for (std::size_t index = first_part_behind(range.offset);
       index < parts_.size() && parts_[index].offset < range.end();
       ++index) {
    const LandingPart& part = parts_[index];
    const std::uint64_t end =
        std::min(range.end(), part.offset + part.memory.size_bytes) - part.offset;
    landed_in(index, std::max(range.offset, part.offset) - part.offset, end);
  }
}

std::uint64_t LandingChecksums::step_bytes(std::uint64_t offset,
                                           std::uint64_t most) const noexcept {
  const std::size_t index = first_part_behind(offset);
  if (index == parts_.size() || offset < parts_[index].offset) {
    return most;
  }
  const std::uint64_t within = offset - parts_[index].offset;
  const std::uint64_t block_end = (within + most) / block_bytes_ * block_bytes_;
  return block_end > within ? block_end - within : most;
}

std::uint64_t LandingChecksums::rest_of_block(std::uint64_t offset) const noexcept {
  const std::size_t index = first_part_behind(offset);
  if (index == parts_.size() || offset <= parts_[index].offset) {
    return 0;
  }
  const std::uint64_t within = offset - parts_[index].offset;
  const std::uint64_t done = within % block_bytes_;
  return done == 0 ? 0 : std::min(block_bytes_ - done, parts_[index].memory.size_bytes - within);
}

std::uint64_t LandingChecksums::whole_blocks_of(Range piece) const noexcept {
  const std::size_t index = first_part_behind(piece.end());
  if (index == parts_.size() || piece.end() <= parts_[index].offset) {
    return piece.size;
  }
  const std::uint64_t begin = parts_[index].offset;
  const std::uint64_t end = begin + (piece.end() - begin) / block_bytes_ * block_bytes_;
  return end > piece.offset ? end - piece.offset : piece.size;
}

// `begin` and `end` are bytes of the part.
void LandingChecksums::landed_in(std::size_t part,
                                 std::uint64_t begin,
                                 std::uint64_t end) noexcept {
  const MemoryPart& memory = parts_[part].memory;
  for (std::uint64_t block = begin / block_bytes_; block * block_bytes_ < end; ++block) {
    const std::uint64_t first = block * block_bytes_;
    const std::uint64_t size = std::min(block_bytes_, memory.size_bytes - first);
    const std::uint64_t here = std::min(end, first + size) - std::max(begin, first);
    const std::size_t number = first_blocks_[part] + block;
    // Who adds the last bytes sees what the others have brought.
    if (here == size ||
        landed_bytes_[number].fetch_add(here, std::memory_order_acq_rel) + here == size) {
      const auto* bytes = reinterpret_cast<const void*>(  // NOLINT(performance-no-int-to-ptr)
          memory.address.value + first);
      checksums_[number] = xxh3_of(bytes, size);
    }
  }
}

}  // namespace hippogriff
