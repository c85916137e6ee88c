// What the library's own kernels do: rows of an array to memory and back, or asked for ahead, by
// their numbers. Host and device: the host asks ahead by it, and has it for the stand-in of the
// driver.
#pragma once

#include <hippogriff/array/view.hpp>

namespace hippogriff::ondemand {

inline constexpr const char* gather_kernel_name = "hippogriff_array_gather";
inline constexpr const char* scatter_kernel_name = "hippogriff_array_scatter";
inline constexpr const char* flush_kernel_name = "hippogriff_array_flush";
inline constexpr const char* prefetch_kernel_name = "hippogriff_array_prefetch";
inline constexpr const char* zero_copy_kernel_name = "hippogriff_array_zero_copy";
inline constexpr uint32_t row_kernel_threads = 256;

// The kernels' one argument. Addresses are of the device's memory, or of host memory it reaches.
struct RowMoves {
  Cache cache;
  uint64_t base = 0;        // where row 0 begins in the array
  uint64_t row_bytes = 0;   // at least 1
  uint64_t rows_there = 0;  // numbers from here on are out of range
  uint64_t numbers = 0;     // address of `count` numbers; 0: they are 0, 1, 2 and so on
  uint64_t count = 0;
  uint64_t memory = 0;   // address of `count` rows one after the other; for a prefetch nothing
  uint64_t storage = 0;  // address of what the array stands on, for rows past the cache
  uint64_t outcome = 0;  // address of a uint32_t for the first failure's NvmeStatus, or 0
  uint32_t number_bytes = 8;
  uint32_t numbers_signed = 0;  // then -1 is the last row

  // Rows are shared out in parts that end where lines do, so that long ones have many workers.
  [[nodiscard]] HIPPO_ANYWHERE uint64_t part_bytes() const {
    constexpr uint64_t least = 4096;
    return cache.line_bytes() < least ? least : cache.line_bytes();
  }

  [[nodiscard]] HIPPO_ANYWHERE uint64_t parts_each() const {
    return row_bytes <= part_bytes() ? 1 : (row_bytes + part_bytes() - 2) / part_bytes() + 1;
  }

  // Whether a row is a word that lies within a line: then a thread moves it, else a warp.
  [[nodiscard]] HIPPO_ANYWHERE bool is_words() const {
    return (row_bytes == 4 || row_bytes == 8) && (base | memory) % row_bytes == 0;
  }

  // The number of the ith row; false when it is out of range.
  [[nodiscard]] HIPPO_ANYWHERE bool number_of(uint64_t i, uint64_t& number) const {
    number = i;
    if (numbers != 0 && number_bytes == 8) {
      number = reinterpret_cast<const uint64_t*>(numbers)[i];
    } else if (numbers != 0) {
      number = reinterpret_cast<const uint32_t*>(numbers)[i];
      if (numbers_signed != 0) {
        number = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(number)));
      }
    }
    if (numbers_signed != 0 && static_cast<int64_t>(number) < 0) {
      number += rows_there;  // still beyond the end when it was too low
    }
    return number < rows_there;
  }

  HIPPO_ANYWHERE void note(NvmeStatus status) const {
    if (status != NvmeStatus::success && outcome != 0) {
      set_once(*reinterpret_cast<uint32_t*>(outcome), static_cast<uint32_t>(status));
    }
  }

  // The nth part of the ith row, by a group that holds no line. What cannot be read is zeros.
  template <bool Writes, typename Group>
  HIPPO_ANYWHERE void move_part(const Group& group, uint64_t i, uint64_t part) const {
    uint64_t number = 0;
    const bool there = number_of(i, number);
    const uint64_t row = there ? base + number * row_bytes : 0;
    const uint64_t first = row / part_bytes() + part;
    const uint64_t begin = part == 0 ? row : first * part_bytes();
    const uint64_t row_end = row + row_bytes;
    const uint64_t end =
        (first + 1) * part_bytes() < row_end ? (first + 1) * part_bytes() : row_end;
    if (parts_each() > 1 && begin >= end) {
      return;
    }
    const uint64_t bytes = (parts_each() > 1 ? end : row_end) - begin;
    auto* here = reinterpret_cast<unsigned char*>(memory) + i * row_bytes + (begin - row);
    NvmeStatus status = NvmeStatus::out_of_range;
    if (there && Writes) {
      status = write_bytes(cache, group, begin, bytes, here);
    } else if (there) {
      status = read_bytes(cache, group, begin, bytes, here);
    } else if (group.leads()) {
      cache.noted(status);
    }
    if (status != NvmeStatus::success) {
      if (group.leads()) {
        note(status);
      }
      for (uint64_t byte = group.rank(); !Writes && byte < bytes; byte += group.size()) {
        here[byte] = 0;
      }
    }
  }

  // Whether that moves 16 bytes at a time: else it takes far more reads of the link.
  [[nodiscard]] HIPPO_ANYWHERE bool reads_past_quickly() const {
    return (storage | memory | row_bytes) % sizeof(Sixteen) == 0;
  }

  // The ith row straight from what the array stands on, or zeros.
  template <typename Group>
  HIPPO_ANYWHERE void read_past(const Group& group, uint64_t i) const {
    auto* const to = reinterpret_cast<unsigned char*>(memory) + i * row_bytes;
    uint64_t number = 0;
    const bool there = number_of(i, number);
    if (!there && group.leads()) {
      note(cache.noted(NvmeStatus::out_of_range));
    }
    const auto* const from =
        reinterpret_cast<const unsigned char*>(storage) + (there ? number * row_bytes : 0);
    if (there && reads_past_quickly()) {
      for (uint64_t k = group.rank(); k < row_bytes / sizeof(Sixteen); k += group.size()) {
        reinterpret_cast<Sixteen*>(to)[k] = reinterpret_cast<const Sixteen*>(from)[k];
      }
      return;
    }
    for (uint64_t byte = group.rank(); byte < row_bytes; byte += group.size()) {
      to[byte] = there ? from[byte] : 0;
    }
  }

  // In how many lines a row lies at most.
  [[nodiscard]] HIPPO_ANYWHERE uint64_t lines_each() const {
    const uint64_t line = cache.line_bytes();
    const bool fits = base % line == 0 && (row_bytes % line == 0 || line % row_bytes == 0);
    return fits ? (row_bytes - 1) / line + 1 : (row_bytes + line - 2) / line + 1;
  }

  // How many lines a prefetch looks at: of half of the cache, so that what was asked for first is
  // not what makes room for the rest, unless there is room for all.
  [[nodiscard]] HIPPO_ANYWHERE uint64_t ask_count() const {
    const uint64_t half = cache.places.place_count() / 2;
    const uint64_t most = half == 0 ? 1 : half;
    const uint64_t all = count * lines_each();
    return all < most || cache.places.whole ? all : most;
  }

  // Asks for lines ahead, one for each of a group, from the ith on; see Cache::ask_ahead. Of a row
  // out of range the array's failure tells. False when there was no slot for all.
  template <typename Group>
  HIPPO_ANYWHERE bool ask(const Group& group, uint64_t i) const {
    const uint64_t mine = i + group.rank();
    const uint64_t each = lines_each();
    uint64_t number = 0;
    bool wants = mine < ask_count();
    if (wants && !number_of(mine / each, number)) {
      wants = false;
      static_cast<void>(cache.noted(NvmeStatus::out_of_range));
    }
    const uint64_t begin = wants ? base + number * row_bytes : 0;
    const uint64_t line = (begin >> cache.line_shift) + mine % each;
    wants = wants && line <= (begin + row_bytes - 1) >> cache.line_shift;
    const bool is_first_one = is_first(group, wants ? line : no_line);  // all of the group say
    return cache.ask_ahead(group, line, wants && is_first_one);
  }

 private:
  HIPPO_ANYWHERE static bool is_first(const Alone& /*group*/, uint64_t /*line*/) { return true; }

  HIPPO_ANYWHERE static bool is_first(const Lanes& group, uint64_t line) {
    return group.with_same(line).leads();
  }
};

}  // namespace hippogriff::ondemand
