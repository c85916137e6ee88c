// What of a file its device's threads read in place: windows of a mapping of the page cache.
#pragma once

#include "base/range.hpp"
#include "device/device.hpp"
#include "storage/storage.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace hippogriff::ondemand {

// What a thread takes for so many copies of so many bytes together, about.
[[nodiscard]] std::uint64_t copies_ns(std::uint64_t copies, std::uint64_t bytes);

// After how many copies of lines so many bytes, which lie together, are worth registering.
[[nodiscard]] std::uint64_t worth_copies(std::uint64_t bytes, std::uint32_t line_bytes);

// Registering a file's pages takes as long as reading them at some 16 GB/s, one window after the
// other, and pins them. So nobody waits for it: what is not registered yet is copied. Thread-safe.
class FileWindows {
 public:
  // `range` begins on a page, and the file is as long. `line_bytes` is what is copied at a time.
  // Throws Error(io_error).
  FileWindows(std::shared_ptr<Device> device,
              std::shared_ptr<File> file,
              Range range,
              std::uint32_t line_bytes);
  ~FileWindows();
  FileWindows(const FileWindows&) = delete;
  FileWindows& operator=(const FileWindows&) = delete;

  // Where a part of the range can be read by the device's threads; null: it must be copied.
  [[nodiscard]] const std::byte* find(const Range& part) const {
    const std::uint64_t window = part.offset >> window_shift_;
    if (part.end() > bytes_.size() || (part.end() - 1) >> window_shift_ != window ||
        windows_[window].state.load(std::memory_order_acquire) != State::in_place) {
      return nullptr;
    }
    return bytes_.data() + part.offset;
  }

  // A part was copied from the page cache. True when its window is worth registering.
  bool note_copied(const Range& part);

  struct Hot {
    std::size_t window = 0;
    std::uint64_t copied_ns = 0;
  };

  // The window that most was copied from, of those that are worth it.
  [[nodiscard]] std::optional<Hot> hottest() const;

  // Registers a window where all of it is in the page cache, and memory has room for more pages
  // that stay. False: it is copied as before, and tried again after twice as many copies.
  bool put_in_place(std::size_t window) noexcept;

  // Registers what is left: where all of the range is from then on; null where some of it cannot
  // be.
  [[nodiscard]] const std::byte* put_all_in_place();

  [[nodiscard]] std::uint64_t in_place_bytes() const;

  // Of all arrays of this process.
  [[nodiscard]] static std::uint64_t all_in_place_bytes();

  // The device's threads have ended: gives all pages back. Nothing is put in place from then on.
  // False where a window is being registered that long, since a drive hangs: then everything must
  // stay.
  bool close(std::chrono::milliseconds patience) noexcept;

 private:
  enum class State : std::uint8_t { copied, in_place, refused };

  struct Window {
    std::atomic<State> state{State::copied};
    std::atomic<std::uint64_t> copied_ns{0};  // about, since the last try
    std::atomic<std::uint8_t> tries{0};       // that failed
  };

  [[nodiscard]] bool is_worth(std::size_t window, std::uint64_t copied_ns) const {
    constexpr std::uint8_t doublings_max = 16;
    const auto tries =
        std::min(windows_[window].tries.load(std::memory_order_relaxed), doublings_max);
    return copied_ns >> tries >= worth_ns(window);
  }

  // Of copies, that make a window worth registering.
  [[nodiscard]] std::uint64_t worth_ns(std::size_t window) const;

  [[nodiscard]] bool is_cached(const Range& part) const;
  bool try_to_register(Window& window, const Range& part) noexcept;

  [[nodiscard]] std::uint64_t window_bytes() const { return std::uint64_t{1} << window_shift_; }

  [[nodiscard]] Range part_of(std::size_t window) const;

  std::shared_ptr<Device> device_;  // this and the next until close()
  std::shared_ptr<File> file_;
  const std::uint64_t file_offset_;
  const unsigned window_shift_;
  const std::uint32_t line_bytes_;
  std::vector<Window> windows_;
  std::span<std::byte> mapping_;
  std::span<const std::byte> bytes_;  // of it, the range
  std::mutex mutex_;                  // guards what follows
  std::condition_variable done_;
  bool registers_ = false;  // a window, without the mutex
  bool closed_ = false;
};

}  // namespace hippogriff::ondemand
