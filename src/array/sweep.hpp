// When a cold file is better read from its beginning to its end, whatever is read of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace hippogriff::ondemand {

// A drive gives what is asked for in order several times as fast as what is asked for here and
// there, and a file that is not large is in the page cache in some tenths of a second. So once a
// 128th of a file's pages were read, each by itself, all of it is worth reading. It is read a piece
// at a time, which takes from those who read meanwhile a share of the drive and no more, and for as
// long as the array is open: who needed little of it pays no more than that. ReadAround knows where
// reads of larger files lie close together. Thread-safe.
class Sweep {
 public:
  static constexpr std::uint64_t file_bytes_max = std::uint64_t{2} << 30;
  // Of what memory has room for, so that others' files stay.
  static constexpr std::uint64_t share_of_memory = 8;
  static constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

  // Of a file with so many bytes of the array; 0: there is none, or several.
  explicit Sweep(std::uint64_t file_bytes)
      : wanted_(file_bytes == 0 || file_bytes > file_bytes_max
                    ? 0
                    : std::max(file_bytes / page_bytes / share_read, reads_min)) {}

  // A part is about to be read from the drive. True once: when the file is worth reading.
  [[nodiscard]] bool note() noexcept {
    return wanted_ != 0 && reads_.fetch_add(1, std::memory_order_relaxed) + 1 == wanted_;
  }

 private:
  static constexpr std::uint64_t page_bytes = 4096;
  static constexpr std::uint64_t share_read = 128;
  static constexpr std::uint64_t reads_min = 512;

  const std::uint64_t wanted_;  // 0: it never is
  std::atomic<std::uint64_t> reads_{0};
};

}  // namespace hippogriff::ondemand
