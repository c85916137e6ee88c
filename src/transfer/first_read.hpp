// The beginning of a send whose device is not ready: read by the drive into host memory meanwhile.
#pragma once

#include "base/range.hpp"
#include "storage/storage.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace hippogriff {

class ReadAheadFile;

// Not thread-safe. Has a thread of its own.
class FirstRead {
 public:
  static constexpr std::uint64_t step_bytes = std::uint64_t{512} << 10;

  // How many reads of step_bytes may be under way at the drive, when so many bytes have been read;
  // 0: none, others need it more. Called by the thread, under the lock, and given up when there is
  // nothing left to read, or when end() or the destructor begins.
  using ReadsAllowed = std::function<std::uint32_t(std::uint64_t read_bytes)>;

  // Begins to read an extent from its beginning on, `bytes_max` at most. Null where that is not
  // worth it: the file has no O_DIRECT, its beginning is in the page cache, there is no room, or no
  // thread. Throws Error(io_error), std::bad_alloc.
  static std::unique_ptr<FirstRead> begin(const std::shared_ptr<Storage>& storage,
                                          const std::shared_ptr<File>& file,
                                          Range extent,
                                          std::uint64_t bytes_max,
                                          ReadsAllowed reads_allowed);
  ~FirstRead();
  FirstRead(const FirstRead&) = delete;
  FirstRead& operator=(const FirstRead&) = delete;

  // So far. Thread-safe.
  [[nodiscard]] std::uint64_t read_bytes() const;

  // Ends it, and returns the file with what has been read; null when that is nothing. Waits for
  // what is under way, but not for a drive that hangs. What could not be read is read again by
  // whoever sends the file, and is told what is wrong.
  std::shared_ptr<ReadAheadFile> end();

 private:
  struct State;

  explicit FirstRead(std::shared_ptr<State> state);
  void stop() noexcept;

  const std::shared_ptr<State> state_;  // also the thread's, which may be in a read that hangs
  std::thread thread_;
};

}  // namespace hippogriff
