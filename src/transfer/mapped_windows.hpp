// Windows of a file mapping, registered with the device and copied by its copy engine: no CPU copy.
#pragma once

#include "transfer/lanes.hpp"

#include <deque>
#include <memory>

namespace hippogriff {

// Not thread-safe: belongs to one lane task. Destruction waits for the copies (up to
// device_timeout); a window whose copy never ends stays mapped. Windows whose copies are complete
// stay registered until they are too many, and go to LaneContext::copied_windows in the end.
class MappedWindows {
 public:
  MappedWindows(LaneContext& context, Transfer& transfer);
  ~MappedWindows();
  MappedWindows(const MappedWindows&) = delete;
  MappedWindows& operator=(const MappedWindows&) = delete;

  // Starts to copy a window's bytes. False when this file cannot be mapped and registered here.
  // Throws Error(short_file, device_error).
  bool copy(Range piece);
  // Ends windows whose copies are complete.
  void retire_copied();
  // Waits for the oldest copy.
  void retire_oldest();

  [[nodiscard]] bool copying() const { return !copying_.empty(); }

  // Small at first, so that the link need not wait long for the first copy, and towards the end, so
  // that all lanes finish together. Not more than `most`, unless that is less than any window.
  static std::uint64_t window_bytes(const Transfer& transfer, std::uint64_t most);

 private:
  struct Window {
    RegisteredWindow pages;
    std::unique_ptr<Event> copied;
    Range piece;
    Clock::time_point copy_begin;
  };

  bool open(Range piece, Window& window);
  void start_copy(Window& window);
  void make_room(std::uint64_t bytes);
  template <typename Ask>
  auto ask_oldest(Ask&& ask);
  void finish_oldest();

  LaneContext& context_;
  Transfer& transfer_;
  CopyStream& stream_;
  const std::uint64_t registered_bytes_max_;
  std::uint64_t registered_bytes_ = 0;
  std::deque<Window> copying_;
  std::deque<RegisteredWindow> copied_;
};

}  // namespace hippogriff
