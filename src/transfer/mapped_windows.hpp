// Windows of a file mapping, registered with the device and copied by its copy engine, a few at a
// time: no CPU copy. What both lanes that use them share.
#pragma once

#include "transfer/lanes.hpp"

#include <deque>
#include <memory>

namespace hippogriff {

// Not thread-safe: belongs to one lane task. Destruction waits for the copies (up to
// device_timeout); a window whose copy never ends stays mapped.
class MappedWindows {
 public:
  static constexpr std::size_t in_flight_max = 2;

  MappedWindows(LaneContext& context, Transfer& transfer)
      : context_(context), transfer_(transfer) {}

  ~MappedWindows();
  MappedWindows(const MappedWindows&) = delete;
  MappedWindows& operator=(const MappedWindows&) = delete;

  // Starts to copy a window's bytes. False when this file cannot be mapped and registered here.
  // Throws Error(short_file, device_error).
  bool copy(Range piece);
  // Ends windows whose copy is complete; true when there was one.
  bool retire_copied();
  void retire_oldest();

  [[nodiscard]] std::size_t in_flight() const { return windows_.size(); }

  // Whole windows, smaller towards the end so that all lanes finish together.
  static std::uint64_t window_bytes(const Transfer& transfer);

 private:
  struct Window {
    std::span<std::byte> mapping;
    std::unique_ptr<Event> copied;
    Range piece;
    Clock::time_point copy_begin;
  };

  bool open(Range piece, Window& window);
  void close(Window& window);
  template <typename Ask>
  auto ask_oldest(Ask&& ask);
  void finish_oldest();

  LaneContext& context_;
  Transfer& transfer_;
  std::deque<Window> windows_;
};

}  // namespace hippogriff
