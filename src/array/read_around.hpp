// Where reads of a cold file are so close together that all around them is better read at once: a
// drive gives many short reads a fraction of what it gives long ones.
#pragma once

#include "base/range.hpp"
#include "storage/storage.hpp"

#include <hippogriff/array/portable.hpp>

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
  // begins, when a quarter of it was read by several reads with this one. Then the block is
  // forgotten, as it is for another that takes its place.
  [[nodiscard]] std::optional<Range> note(const File& file, const Range& part) {
    const std::uint64_t number = part.offset / block_bytes;
    Block& block =
        blocks_[spread(reinterpret_cast<std::uintptr_t>(&file) ^ number) % blocks_.size()];
    if (block.file != &file || block.number != number) {
      block = {&file, number, part.size};
      return std::nullopt;
    }
    block.read_bytes += part.size;
    if (block.read_bytes < worth_bytes) {
      return std::nullopt;
    }
    const bool some_is_left = block.read_bytes < block_bytes;
    block = {};
    return some_is_left ? std::optional(Range{number * block_bytes, block_bytes}) : std::nullopt;
  }

 private:
  static constexpr std::uint64_t block_bytes = std::uint64_t{128} << 10;
  static constexpr std::uint64_t worth_bytes = block_bytes / 4;
  static constexpr std::size_t blocks_remembered = 1024;

  struct Block {
    const File* file = nullptr;  // told apart by it, and never touched
    std::uint64_t number = 0;
    std::uint64_t read_bytes = 0;
  };

  std::vector<Block> blocks_;
};

}  // namespace hippogriff::ondemand
