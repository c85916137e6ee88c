// Where reads of a cold file are so close together that all around them is better read at once: a
// drive gives many short reads a fraction of what it gives long ones.
#pragma once

#include "base/range.hpp"
#include "storage/storage.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hippogriff::ondemand {

// What one thread has read from drives lately, by blocks of files: as many bytes as lines behind
// each other that share a queue. Not thread-safe.
class ReadAround {
 public:
  ReadAround() : blocks_(blocks_remembered) {}

  // Of a part of a file that is about to be read from its drive: the block of the file in which it
  // begins, when a quarter of it was read by several reads with this one. Once, until the block is
  // forgotten for another.
  [[nodiscard]] std::optional<Range> note(const File& file, const Range& part) {
    const std::uint64_t number = part.offset / block_bytes;
    Block& block = blocks_[number % blocks_.size()];
    if (block.file != &file || block.number != number) {
      block = {.file = &file, .number = number};
    }
    const bool is_first = block.read_bytes == 0;
    block.read_bytes += part.size;
    if (is_first || block.is_asked_for || block.read_bytes < worth_bytes ||
        block.read_bytes >= block_bytes) {
      return std::nullopt;
    }
    block.is_asked_for = true;
    return Range{number * block_bytes, block_bytes};
  }

 private:
  static constexpr std::uint64_t block_bytes = std::uint64_t{128} << 10;
  static constexpr std::uint64_t worth_bytes = block_bytes / 4;
  static constexpr std::size_t blocks_remembered = 1024;

  struct Block {
    const File* file = nullptr;  // told apart by it, and never touched
    std::uint64_t number = 0;
    std::uint64_t read_bytes = 0;
    bool is_asked_for = false;  // all of it
  };

  std::vector<Block> blocks_;
};

}  // namespace hippogriff::ondemand
