// When a window is registered, and that it is in the page cache then.
#include "array/file_windows.hpp"

#include "base/machine_memory.hpp"
#include "base/page_size.hpp"
#include "storage/page_cache.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace hippogriff::ondemand {

namespace {

// Each registration has a cost of its own, of some 0.1 ms; each window has to be looked at.
constexpr std::uint64_t window_bytes_min = std::uint64_t{8} << 20;
constexpr std::uint64_t windows_max = 4096;

// Of one thread, on the machines of bench/results: 4 KiB 1.15 us, 64 KiB 10 us.
constexpr std::uint64_t copy_ns = 600;
constexpr std::uint64_t copied_bytes_a_ns = 7;

// A window is worth it when so much of it was copied as takes a processor as long as registering
// it: a quarter. Programs that read a line here and there never come to that, and registering would
// hold up their calls of the driver. One of long lines, which are copied as fast as it is
// registered, is worth it when it is read again.
constexpr std::uint64_t worth_share = 4;
constexpr std::uint32_t long_line_bytes = 32U << 10U;

// For another thread's window.
constexpr std::chrono::seconds driver_patience{10};

// Registered pages stay in memory, whatever else wants it.
std::atomic<std::uint64_t>& all_in_place() {
  static std::atomic<std::uint64_t> bytes{0};
  return bytes;
}

unsigned window_shift_for(std::uint64_t size_bytes) {
  const std::uint64_t least =
      std::max(window_bytes_min, (size_bytes + windows_max - 1) / windows_max);
  return static_cast<unsigned>(std::bit_width(least - 1));
}

}  // namespace

std::uint64_t copies_ns(std::uint64_t copies, std::uint64_t bytes) {
  return copies * copy_ns + bytes / copied_bytes_a_ns;
}

std::uint64_t worth_copies(std::uint64_t bytes, std::uint32_t line_bytes) {
  const std::uint64_t all = (bytes + line_bytes - 1) / line_bytes;
  return line_bytes >= long_line_bytes ? all : all / worth_share;
}

FileWindows::FileWindows(std::shared_ptr<Device> device,
                         std::shared_ptr<File> file,
                         Range range,
                         std::uint32_t line_bytes)
    : device_(std::move(device)),
      file_(std::move(file)),
      file_offset_(range.offset),
      window_shift_(window_shift_for(range.size)),
      line_bytes_(line_bytes),
      windows_((range.size + window_bytes() - 1) >> window_shift_),
      mapping_(file_->map({range.offset, align_up(range.size, page_bytes())}, FileAccess::read)),
      bytes_(std::span<const std::byte>(mapping_).first(range.size)) {}

FileWindows::~FileWindows() {
  static_cast<void>(close(std::chrono::hours(24)));
}

Range FileWindows::part_of(std::size_t window) const {
  const std::uint64_t begin = std::uint64_t{window} << window_shift_;
  return {begin, std::min<std::uint64_t>(window_bytes(), bytes_.size() - begin)};
}

std::uint64_t FileWindows::worth_ns(std::size_t window) const {
  const std::uint64_t bytes = part_of(window).size;
  const std::uint64_t all_ns = copies_ns((bytes + line_bytes_ - 1) / line_bytes_, bytes);
  return line_bytes_ >= long_line_bytes ? all_ns : all_ns / worth_share;
}

bool FileWindows::note_copied(const Range& part) {
  const std::size_t number = part.offset >> window_shift_;
  Window& window = windows_[number];
  if (window.state.load(std::memory_order_relaxed) != State::copied) {
    return false;
  }
  const std::uint64_t its_ns = copies_ns(1, part.size);
  const std::uint64_t all_ns =
      window.copied_ns.fetch_add(its_ns, std::memory_order_relaxed) + its_ns;
  return is_worth(number, all_ns);
}

std::optional<FileWindows::Hot> FileWindows::hottest() const {
  Hot hot;
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    const std::uint64_t copied_ns = windows_[i].copied_ns.load(std::memory_order_relaxed);
    if (copied_ns > hot.copied_ns && is_worth(i, copied_ns) &&
        windows_[i].state.load(std::memory_order_relaxed) == State::copied) {
      hot = {i, copied_ns};
    }
  }
  return hot.copied_ns != 0 ? std::optional(hot) : std::nullopt;
}

// Asked for as much as is looked at page by page. Pages that are not there would be read one after
// the other, and those that a file has lost are never there.
bool FileWindows::is_cached(const Range& part) const {
  for (std::uint64_t offset = part.offset; offset < part.end();) {
    const std::uint64_t size = std::min(residency_exact_bytes_max, part.end() - offset);
    const auto residency = file_->residency({file_offset_ + offset, size});
    if (!residency || !residency->exact || residency->resident_bytes != size) {
      return false;
    }
    offset += size;
  }
  return true;
}

bool FileWindows::try_to_register(Window& window, const Range& part) noexcept {
  try {
    if (all_in_place_bytes() + part.size <= total_memory_bytes() / 2 && is_cached(part)) {
      device_->register_host(
          mapping_.data() + part.offset, align_up(part.size, page_bytes()), HostAccess::read_only);
      all_in_place().fetch_add(part.size, std::memory_order_relaxed);
      window.state.store(State::in_place, std::memory_order_release);
      return true;
    }
  } catch (const Error& error) {
    const Status status = error.failure().status;
    if (status == Status::unsupported || status == Status::invalid_argument) {
      window.state.store(State::refused, std::memory_order_relaxed);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): memory is short, and copies are as right
  }
  window.copied_ns.store(0, std::memory_order_relaxed);
  window.tries.fetch_add(window.tries.load(std::memory_order_relaxed) < UINT8_MAX ? 1 : 0,
                         std::memory_order_relaxed);
  return false;
}

bool FileWindows::put_in_place(std::size_t window) noexcept {
  Window& its = windows_[window];
  {
    std::unique_lock lock(mutex_);
    if (!done_.wait_for(lock, driver_patience, [this] { return !registers_; })) {
      return false;
    }
    if (closed_ || its.state.load(std::memory_order_relaxed) != State::copied) {
      return its.state.load(std::memory_order_relaxed) == State::in_place;
    }
    registers_ = true;
  }
  const bool registered = try_to_register(its, part_of(window));
  const std::scoped_lock lock(mutex_);
  registers_ = false;
  done_.notify_all();
  return registered;
}

const std::byte* FileWindows::put_all_in_place() {
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    if (!put_in_place(i)) {
      return nullptr;
    }
  }
  return bytes_.data();
}

std::uint64_t FileWindows::in_place_bytes() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    bytes +=
        windows_[i].state.load(std::memory_order_relaxed) == State::in_place ? part_of(i).size : 0;
  }
  return bytes;
}

std::uint64_t FileWindows::all_in_place_bytes() {
  return all_in_place().load(std::memory_order_relaxed);
}

bool FileWindows::close(std::chrono::milliseconds patience) noexcept {
  std::unique_lock lock(mutex_);
  if (!done_.wait_for(lock, patience, [this] { return !registers_; })) {
    return false;
  }
  if (std::exchange(closed_, true)) {
    return true;
  }
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    if (windows_[i].state.exchange(State::refused, std::memory_order_relaxed) == State::in_place) {
      device_->unregister_host(mapping_.data() + part_of(i).offset);
      all_in_place().fetch_sub(part_of(i).size, std::memory_order_relaxed);
    }
  }
  file_->unmap(mapping_);
  file_.reset();
  device_.reset();
  return true;
}

}  // namespace hippogriff::ondemand
