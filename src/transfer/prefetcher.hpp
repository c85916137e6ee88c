// Reads files into the page cache that are to be sent soon: while a device is made ready, or the
// program has other things to do.
#pragma once

#include "base/range.hpp"
#include "storage/storage.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace hippogriff {

// Thread-safe. Starts a thread with the first extent.
class Prefetcher {
 public:
  // Whether somebody has more need of the drive that a file is on. Called by the thread, under the
  // lock, until stop() or the destructor begins.
  using DriveIsNeeded = std::function<bool(const File& file)>;

  // `bytes_max`: of all that was asked for within `counted_time` and not sent yet. What is older
  // counts no more, and is not asked for if it still waits: it will not be sent, or was by the
  // small path, which does not tell.
  explicit Prefetcher(std::uint64_t bytes_max,
                      DriveIsNeeded drive_is_needed = nullptr,
                      std::chrono::milliseconds counted_time = std::chrono::seconds(30));
  // What stop() did not see end is left to itself.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  Prefetcher(Prefetcher&&) = delete;
  Prefetcher& operator=(Prefetcher&&) = delete;

  // Begins; returns for how many bytes, from the extent's beginning on: as many as there is room
  // for. None of files in memory, while 32 others wait, after stop(), and where there is no thread.
  // Throws Error(io_error), std::bad_alloc.
  std::uint64_t begin(const std::shared_ptr<File>& file, Range extent);

  // These bytes are being sent: they are asked for no more, which makes room for others.
  void sent(const File& file, Range extent) noexcept;

  // Whether there is something to be asked for.
  [[nodiscard]] bool reads() const noexcept;

  // Ends the thread, and takes nothing more. False when it was still reading at the deadline.
  bool stop(std::chrono::steady_clock::time_point deadline) noexcept;

 private:
  struct State;

  static void run(State& state);

  // Also the thread's, which may be in a read that does not come back.
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace hippogriff
