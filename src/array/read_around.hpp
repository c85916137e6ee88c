// Where reads of a cold file are so close together that all around them is better read at once: a
// drive gives many short reads a fraction of what it gives long ones.
#pragma once

#include "array/regions.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

namespace hippogriff::ondemand {

// What of an array was read from its drives, by blocks of its files. A block is read as a whole
// once what was read of it, a page or more at a time, has taken about as long as all of it takes:
// on the drives at hand a page alone comes in the time of 3 to 7 in order. So what is read all over
// is read in order soon, and what is read here and there costs twice its time at most. Thread-safe.
class ReadAround {
 public:
  // `files` that have so many bytes of the array each, or fewer.
  ReadAround(std::size_t files, std::uint64_t file_bytes)
      : regions_(file_bytes, block_bytes_min, blocks_max / files),
        count_(files * regions_.count()) {}

  // Of a part of a file that is about to be read from its drive, offsets from where the array
  // begins there: the block in which it begins, when enough of it was read, by several reads with
  // this one. It counts from zero then.
  [[nodiscard]] std::optional<Range> note(std::size_t file, const Range& part) noexcept {
    if (!has_counters()) {
      return std::nullopt;
    }
    const std::size_t number = regions_.number_at(part.offset);
    const Range block = regions_.part(number);
    const std::uint64_t worth = block.size * 3 / 16;
    std::atomic<std::uint32_t>& pages_read = pages_read_[file * regions_.count() + number];
    const std::uint32_t pages = pages_of(part.size);
    const std::uint32_t before = pages_read.fetch_add(pages, std::memory_order_relaxed);
    if (before == 0 || (std::uint64_t{before} + pages) * page_bytes < worth) {
      return std::nullopt;
    }
    // Of several threads that come here at once one finds what all have read.
    const std::uint64_t read_bytes =
        std::uint64_t{pages_read.exchange(0, std::memory_order_relaxed)} * page_bytes;
    return read_bytes >= worth && read_bytes < block.size ? std::optional(block) : std::nullopt;
  }

 private:
  static constexpr std::uint64_t page_bytes = 4096;
  static constexpr std::uint64_t block_bytes_min = std::uint64_t{128} << 10;
  static constexpr std::uint64_t blocks_max = std::uint64_t{1} << 20;

  static std::uint32_t pages_of(std::uint64_t size_bytes) {
    return static_cast<std::uint32_t>((size_bytes + page_bytes - 1) / page_bytes);
  }

  // An array whose files are in the page cache never needs them.
  bool has_counters() noexcept {
    try {
      std::call_once(
          made_, [this] { pages_read_ = std::make_unique<std::atomic<std::uint32_t>[]>(count_); });
      return true;
    } catch (const std::exception&) {
      return false;  // no memory now: as if it were read for the first time
    }
  }

  Regions regions_;
  std::size_t count_;
  std::once_flag made_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> pages_read_;
};

}  // namespace hippogriff::ondemand
