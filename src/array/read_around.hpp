// Where reads of a cold file are so close together that all around them is better read at once: a
// drive gives many short reads a fraction of what it gives long ones.
#pragma once

#include "array/read_episodes.hpp"
#include "array/read_forecast.hpp"
#include "array/read_rest.hpp"
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
// once 3/16 of it was read, a page or more at a time. Where a page alone takes as long as r in
// order, what is read here and there costs at most 1 + 4.3 / r times its time, and what is read all
// over comes in order from then on; r was 4 to 7 on the drives at hand, and is less on quicker
// ones. Where blocks that reads came to before were read all over soon (ReadEpisodes), the next
// read of one takes all of it, in vain when reads go on elsewhere meanwhile. Of a gather that was
// told, it is read as soon as so much is foreseen, in vain where something else comes. A block that
// is cold again was read for nothing, or memory is short: each time it takes twice as much. While
// the rest of a file is read (ReadRest), the next read of a block takes all of it.
// Thread-safe.
class ReadAround {
 public:
  // `files` that have so many bytes of the array each, or fewer.
  ReadAround(std::size_t files, std::uint64_t file_bytes)
      : regions_(file_bytes, block_bytes_min, blocks_max / files),
        count_(files * regions_.count()),
        forecast_(count_),
        episodes_(count_),
        rest_(files, pages_of(file_bytes)) {}

  [[nodiscard]] ReadForecast& forecast() { return forecast_; }

  [[nodiscard]] ReadRest& rest() { return rest_; }

  // Of a part of a file that is about to be read from its drive, offsets from where the array
  // begins there: the block in which it begins, when enough of it was read, by several reads with
  // this one, or will be. It counts from zero then. `reads` is how many the array has read.
  [[nodiscard]] std::optional<Range> note(std::size_t file,
                                          const Range& part,
                                          std::uint64_t reads = 0) noexcept {
    if (!has_counters()) {
      return std::nullopt;
    }
    const std::size_t number = regions_.number_at(part.offset);
    const Range block = regions_.part(number);
    const std::uint64_t pages = pages_of(block.size);
    const std::size_t block_number = file * regions_.count() + number;
    const double more_reads = forecast_.note(block_number, reads);
    const bool takes_rest = rest_.is_under_way(file);
    const bool all_over = episodes_.note(block_number, pages_of(part.size)) || takes_rest;
    const double foreseen =
        std::min(more_reads * static_cast<double>(pages_of(part.size)), static_cast<double>(pages));
    std::atomic<std::uint32_t>& counter = counters_[block_number];
    std::uint32_t before = counter.load(std::memory_order_relaxed);
    std::uint32_t after = 0;
    bool enough = false;
    std::uint64_t read = 0;
    do {
      const std::uint32_t times = before >> times_shift;
      const std::uint64_t read_before = before & read_max;
      read = std::min<std::uint64_t>(read_before + pages_of(part.size), read_max);
      const std::uint64_t worth = std::min<std::uint64_t>((pages * 3 / 16) << times, read_max);
      enough = (read_before != 0 && read >= worth) || (all_over && times == 0 && read < pages) ||
               (more_reads >= 1 && read < pages &&
                static_cast<double>(read) + foreseen >= static_cast<double>(worth));
      after = enough ? std::min(times + 1, times_max) << times_shift
                     : times << times_shift | static_cast<std::uint32_t>(read);
    } while (!counter.compare_exchange_weak(before, after, std::memory_order_relaxed));
    const bool first_time = before >> times_shift == 0;
    if (enough && !takes_rest) {
      episodes_.note_whole(block_number);
    }
    if (enough && first_time) {
      rest_.note_whole(file, pages);
    } else if (first_time && pages_of(part.size) < pages) {
      rest_.note_alone(file);
    }
    const bool some_is_left = read < pages || !first_time;
    return enough && some_is_left ? std::optional(block) : std::nullopt;
  }

  // Where reads go all over what they come to, and of the block before `block` some was read: gives
  // the blocks of the next `bytes` of which nothing was read, those in a row together, to be read
  // as a whole. The sample is left out.
  template <typename Give>
  void take_ahead(std::size_t file, const Range& block, std::uint64_t bytes, Give&& give) {
    std::size_t number = regions_.number_at(block.offset);
    if (number == 0 || !episodes_.are_dense() || !has_counters() ||
        counter(file, number - 1).load(std::memory_order_relaxed) == 0) {
      return;
    }
    const std::size_t end =
        std::min<std::size_t>((block.end() + bytes) / regions_.part(0).size, regions_.count());
    Range run{block.end(), 0};
    while (++number < end) {
      const Range part = regions_.part(number);
      if (take_unread(file, number)) {
        rest_.note_whole(file, pages_of(part.size));
        run.size += part.size;
        continue;
      }
      if (run.size != 0) {
        give(run);
      }
      run = {part.end(), 0};
    }
    if (run.size != 0) {
      give(run);
    }
  }

  // Of so many files.
  [[nodiscard]] std::uint64_t rest_bytes(std::size_t files) const noexcept {
    std::uint64_t pages = 0;
    for (std::size_t file = 0; file < files; ++file) {
      pages += rest_.left_pages(file);
    }
    return pages * page_bytes;
  }

  // For who reads the rest: gives the next blocks that were not read as a whole, so many bytes or
  // one more, those in a row together; none when all were.
  template <typename Give>
  void take_rest(std::size_t file, std::uint64_t bytes, Give&& give) {
    Range run{};
    std::size_t& number = rest_.next_block(file);
    for (std::uint64_t taken = 0; number < regions_.count() && taken < bytes; ++number) {
      if (!take_first(file, number)) {
        continue;
      }
      const Range part = regions_.part(number);
      rest_.note_whole(file, pages_of(part.size));
      taken += part.size;
      if (run.size != 0 && run.end() == part.offset) {
        run.size += part.size;
        continue;
      }
      if (run.size != 0) {
        give(run);
      }
      run = part;
    }
    if (run.size != 0) {
      give(run);
    }
  }

 private:
  static constexpr std::uint64_t page_bytes = 4096;
  static constexpr std::uint64_t block_bytes_min = std::uint64_t{128} << 10;
  static constexpr std::uint64_t blocks_max = std::uint64_t{1} << 21;
  // A counter has the pages read, and above how often the block was read as a whole.
  static constexpr std::uint32_t times_shift = 28;
  static constexpr std::uint32_t times_max = 15;
  static constexpr std::uint32_t read_max = (std::uint32_t{1} << times_shift) - 1;

  std::atomic<std::uint32_t>& counter(std::size_t file, std::size_t number) noexcept {
    return counters_[file * regions_.count() + number];
  }

  bool take_unread(std::size_t file, std::size_t number) noexcept {
    std::uint32_t unread = 0;
    return !ReadEpisodes::is_sampled(file * regions_.count() + number) &&
           counter(file, number)
               .compare_exchange_strong(
                   unread, std::uint32_t{1} << times_shift, std::memory_order_relaxed);
  }

  // Unless it was read as a whole before.
  bool take_first(std::size_t file, std::size_t number) noexcept {
    std::atomic<std::uint32_t>& its = counter(file, number);
    std::uint32_t before = its.load(std::memory_order_relaxed);
    while (before >> times_shift == 0) {
      if (its.compare_exchange_weak(
              before, std::uint32_t{1} << times_shift, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  static std::uint64_t pages_of(std::uint64_t size_bytes) {
    return (size_bytes + page_bytes - 1) / page_bytes;
  }

  // An array whose files are in the page cache never needs them.
  bool has_counters() noexcept {
    try {
      std::call_once(
          made_, [this] { counters_ = std::make_unique<std::atomic<std::uint32_t>[]>(count_); });
      return true;
    } catch (const std::exception&) {
      return false;  // no memory now: as if it were read for the first time
    }
  }

  Regions regions_;
  std::size_t count_;
  ReadForecast forecast_;
  ReadEpisodes episodes_;
  ReadRest rest_;
  std::once_flag made_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> counters_;
};

}  // namespace hippogriff::ondemand
