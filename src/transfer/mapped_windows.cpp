// Map, register, copy; unregister and unmap when there is time for it.
#include "transfer/mapped_windows.hpp"

#include "base/machine_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace hippogriff {

namespace {

// A call of the driver costs some 70 us beside what its pages cost (an H100 machine): 64 MiB make
// that 5 %.
constexpr std::uint64_t window_bytes_max = std::uint64_t{64} << 20;
constexpr std::uint64_t window_bytes_min = std::uint64_t{4} << 20;
// Of files in memory, of which registering takes longer: 1 GiB took 2 % longer when it was 4 MiB
// (an H100 machine).
constexpr std::uint64_t window_bytes_first_in_memory = std::uint64_t{16} << 20;
constexpr std::uint64_t shares = 8;
// Where the host itself is the device nothing is registered and windows cost nothing: small ones
// keep the process's resident memory, which counts mapped pages, as it was.
constexpr std::uint64_t host_window_bytes = std::uint64_t{8} << 20;

// Registered pages cannot be reclaimed meanwhile.
constexpr std::uint64_t pinned_bytes_max = std::uint64_t{4} << 30;
constexpr std::uint64_t pinned_share_of_memory = 16;

// Unregistering takes the driver a third of the time that registering takes, in which it registers
// nothing. So it is put off until the transfer is over, as far as memory allows.
std::uint64_t pinned_bytes(Device& device, const Transfer& transfer) {
  if (device.info().can.host_addressable) {
    return 2 * host_window_bytes;
  }
  const std::uint64_t most =
      std::min(pinned_bytes_max, total_memory_bytes() / pinned_share_of_memory);
  const std::uint64_t tasks = std::max(transfer.decision().choice().plan.mapped_channels, 1U);
  // Two windows at least: one is registered while another is copied. No more where unregistering
  // could wait for the work of others: it must not pile up then.
  const bool at_leisure = device.registers_aside(std::chrono::milliseconds(0));
  return std::max(at_leisure ? most / tasks : 0, 2 * window_bytes_max);
}

// The driver faults the small pages of tmpfs in one by one while nobody else can register: on an
// H100 machine 94 ms a GiB, of which this leaves 36. Four lanes that map alone get half as much
// again done. Files of a disk have larger folios, of which four lanes lost 3 % by it. What cannot
// be had here is left for the driver to report.
void fault_in(std::span<std::byte> pages) noexcept {
  constexpr int advise_populate_read = 22;  // MADV_POPULATE_READ, Linux 5.14
  while (madvise(pages.data(), pages.size(), advise_populate_read) != 0 && errno == EINTR) {
  }
}

}  // namespace

MappedWindows::MappedWindows(LaneContext& context, Transfer& transfer)
    : context_(context),
      transfer_(transfer),
      // The host finds out about a truncated file while it copies: the failure must stay with this
      // transfer there. A GPU has the pages.
      stream_(context.device.info().can.registers_aside ? context.to_device : context.stream),
      registered_bytes_max_(pinned_bytes(context.device, transfer)) {}

MappedWindows::~MappedWindows() {
  for (Window& window : copying_) {
    bool complete = false;
    try {
      complete = wait_for(*window.copied, device_timeout);
    } catch (const Error&) {
      complete = stream_.drain();  // then nothing uses the pages any more
    }
    if (!complete) {
      window.pages.abandon();
    }
  }
  for (RegisteredWindow& window : copied_) {
    context_.copied_windows.add(std::move(window));
  }
}

std::uint64_t MappedWindows::window_bytes(const Transfer& transfer, std::uint64_t most) {
  const std::uint64_t unclaimed = transfer.work.unclaimed_bytes();
  const std::uint64_t claimed = transfer.request().extent.size - unclaimed;
  const bool in_memory = transfer.request().file->facts().in_memory;
  const std::uint64_t first = in_memory ? window_bytes_first_in_memory : window_bytes_min;
  const std::uint64_t ramp = first + claimed / shares;
  const bool on_host = transfer.request().device->info().can.host_addressable;
  return std::clamp(align_down(std::min({unclaimed / shares, ramp, most}), window_bytes_min),
                    window_bytes_min,
                    on_host ? host_window_bytes : window_bytes_max);
}

bool MappedWindows::copy(Range piece) {
  make_room(piece.size);
  Window window;
  if (!open(piece, window)) {
    return false;
  }
  window.piece = piece;
  try {
    start_copy(window);
  } catch (...) {
    // Without an event nobody could tell when the copy ends, or that it never began.
    if (!stream_.drain()) {
      window.pages.abandon();
    }
    throw;
  }
  registered_bytes_ += window.pages.size();
  copying_.push_back(std::move(window));
  return true;
}

void MappedWindows::start_copy(Window& window) {
  const Range piece = window.piece;
  const std::uint64_t lead = piece.offset - align_down(piece.offset, WorkMap::cut_bytes);
  window.copy_begin = Clock::now();
  stream_.copy_to_device(transfer_.copies_of(piece, window.pages.data() + lead), *window.copied);
}

void MappedWindows::make_room(std::uint64_t bytes) {
  while (registered_bytes_ > 0 && registered_bytes_ + bytes > registered_bytes_max_) {
    if (copied_.empty()) {
      retire_oldest();
    }
    registered_bytes_ -= copied_.front().size();
    copied_.pop_front();
  }
}

// A device that is the host finds the pages of a truncated file gone: then it is the file that
// failed.
template <typename Ask>
auto MappedWindows::ask_oldest(Ask&& ask) {
  const Window& window = copying_.front();
  try {
    return ask(*window.copied);
  } catch (const Error&) {
    const std::uint64_t size_now = transfer_.file().size_now();
    if (size_now < window.piece.end()) {
      throw_short_file(transfer_, size_now);
    }
    throw;
  }
}

void MappedWindows::retire_copied() {
  while (copying() && ask_oldest([](Event& copied) { return copied.completed(); })) {
    finish_oldest();
  }
}

void MappedWindows::retire_oldest() {
  ask_oldest(
      [this](Event& copied) { await_copy(context_, copied, "copy mapped pages to device"); });
  finish_oldest();
}

void MappedWindows::finish_oldest() {
  Window& window = copying_.front();
  if (context_.trace != nullptr) {
    context_.trace->slice(context_.copy_track,
                          "copy mapped",
                          window.copy_begin,
                          Clock::now(),
                          window.piece.offset,
                          window.piece.size);
  }
  transfer_.piece_done(Lane::mapped, window.piece);
  copied_.push_back(std::move(window.pages));
  copying_.pop_front();
}

bool MappedWindows::open(Range piece, Window& window) {
  static const SliceName name("map and register");
  const TraceSlice slice(context_.trace, context_.cpu_track, name, piece.offset, piece.size);
  const std::uint64_t begin = align_down(piece.offset, WorkMap::cut_bytes);
  const Range pages{begin, align_up(piece.end(), WorkMap::cut_bytes) - begin};
  const std::uint64_t size_now = transfer_.file().size_now();
  if (size_now < piece.end()) {
    throw_short_file(transfer_, size_now);
  }
  window.copied = context_.device.create_event();
  try {
    const auto mapping = transfer_.file().map(pages, FileAccess::read);
    if (transfer_.file().facts().in_memory && !context_.device.info().can.host_addressable) {
      fault_in(mapping);
    }
    window.pages =
        RegisteredWindow(context_.device, transfer_.request().file, mapping, HostAccess::read_only);
  } catch (const Error&) {
    return false;
  }
  // The pages are pinned: the device does not need our page table, and without it they do not count
  // as this process's memory. Where it fails, they do.
  static_cast<void>(madvise(window.pages.data(), window.pages.size(), MADV_DONTNEED));
  return true;
}

}  // namespace hippogriff
