// Map, register, copy, unregister, unmap.
#include "transfer/mapped_windows.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace hippogriff {

namespace {

constexpr std::uint64_t window_bytes_max = std::uint64_t{32} << 20;
constexpr std::uint64_t window_bytes_min = std::uint64_t{4} << 20;

}  // namespace

MappedWindows::~MappedWindows() {
  while (!windows_.empty()) {
    bool complete = false;
    try {
      complete = wait_for(*windows_.front().copied, device_timeout);
    } catch (const Error&) {
      complete = drain(context_.stream);  // then nothing uses the pages any more
    }
    if (complete) {
      close(windows_.front());
    }
    windows_.pop_front();
  }
}

std::uint64_t MappedWindows::window_bytes(const Transfer& transfer) {
  return std::clamp(align_down(transfer.work.unclaimed_bytes() / 16, window_bytes_min),
                    window_bytes_min,
                    window_bytes_max);
}

bool MappedWindows::copy(Range piece) {
  Window window;
  if (!open(piece, window)) {
    return false;
  }
  window.piece = piece;
  window.copy_begin = Clock::now();
  const std::uint64_t lead = piece.offset - align_down(piece.offset, WorkMap::cut_bytes);
  try {
    context_.stream.copy_to_device(
        transfer_.address_of(piece.offset), window.mapping.data() + lead, piece.size);
    context_.stream.record(*window.copied);
  } catch (...) {
    // Without an event nobody could tell when the copy ends, or that it never began.
    if (drain(context_.stream)) {
      close(window);
    }
    throw;
  }
  windows_.push_back(std::move(window));
  return true;
}

// A device that is the host finds the pages of a truncated file gone: then it is the file that
// failed.
template <typename Ask>
auto MappedWindows::ask_oldest(Ask&& ask) {
  const Window& window = windows_.front();
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

bool MappedWindows::retire_copied() {
  if (windows_.empty() || !ask_oldest([](Event& copied) { return copied.completed(); })) {
    return false;
  }
  finish_oldest();
  return true;
}

void MappedWindows::retire_oldest() {
  ask_oldest(
      [this](Event& copied) { await_copy(context_, copied, "copy mapped pages to device"); });
  finish_oldest();
}

void MappedWindows::finish_oldest() {
  Window& window = windows_.front();
  if (context_.trace != nullptr) {
    context_.trace->slice(context_.copy_track,
                          "copy mapped",
                          window.copy_begin,
                          Clock::now(),
                          window.piece.offset,
                          window.piece.size);
  }
  close(window);
  transfer_.piece_done(Lane::mapped, window.piece);
  windows_.pop_front();
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
    window.mapping = transfer_.file().map(pages, FileAccess::read);
  } catch (const Error&) {
    return false;
  }
  try {
    context_.device.register_host(
        window.mapping.data(), window.mapping.size(), HostAccess::read_only);
  } catch (const Error&) {
    transfer_.file().unmap(window.mapping);
    return false;
  }
  // The pages are pinned: the device does not need our page table, and without it they do not count
  // as this process's memory. Where it fails, they do.
  static_cast<void>(madvise(window.mapping.data(), window.mapping.size(), MADV_DONTNEED));
  return true;
}

void MappedWindows::close(Window& window) {
  context_.device.unregister_host(window.mapping.data());
  transfer_.file().unmap(window.mapping);
}

}  // namespace hippogriff
