// Faults as a storage backend: wraps any Storage and lets scripted or random things go wrong.
#pragma once

#include "storage/storage.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace hippogriff {

// Where a fault can strike. Queued requests are told apart from calls.
enum class FaultPoint : std::uint8_t {
  open,  // open, adopt, borrow, create
  read,
  read_cached,
  write,
  queued_read,
  queued_write,
  submit,  // the queue itself refuses
  reap,    // the queue itself fails
  residency,
  size,
  allocate,
  truncate,
  sync,
  write_back,  // counted alone, as the next two: they have no failure to tell
  read_ahead,
  read_unasked,  // of read_cached, where the page cache is not asked before
  map,
  rename,
  create_queue,  // the last one
};

inline constexpr std::size_t fault_points = static_cast<std::size_t>(FaultPoint::create_queue) + 1;

enum class FaultKind : std::uint8_t {
  error,              // errno_value; the operation is not carried out
  shorten,            // at most `bytes` are reported; the rest of a read buffer is spoilt
  delay,              // carried out, told `delay` later
  hold,               // a queued request is told only after release(); a call waits for it, 60 s at
                      // most
  truncate_file,      // the file is cut to `bytes` first, then the operation is carried out
  residency_unknown,  // residency answers nothing
  residency_wrong,    // residency answers `fraction` of the range
};

struct Fault {
  FaultPoint point = FaultPoint::read;
  FaultKind kind = FaultKind::error;
  std::uint64_t after = 0;  // operations at this point that pass before
  std::uint64_t times = 1;  // then so many are struck
  int errno_value = 5;      // EIO
  std::uint64_t bytes = 0;
  std::chrono::milliseconds delay{0};
  double fraction = 0;
};

// How often each operation that moves bytes is struck, 0 to 1.
struct RandomFaults {
  std::uint64_t seed = 0;  // print it when a test fails
  double error = 0;        // EIO
  double try_again = 0;    // EAGAIN from a queue
  double shorten = 0;      // to a random multiple of 4096, 0 excepted
  double delay = 0;        // of 0 to 5 ms
};

// The script that a FaultyStorage and its files and queues follow. Thread-safe; may change
// meanwhile.
class FaultPlan {
 public:
  void add(const Fault& fault);
  void randomize(const RandomFaults& faults);
  // Writes past this offset fail with ENOSPC, those across it are short, as on a full drive.
  void limit_size(std::uint64_t bytes);
  // Lets everything pass from now on, and releases what is held.
  void clear();
  // Tells what `hold` has kept back, now and in future.
  void release();
  [[nodiscard]] bool released() const;
  // How many operations have been struck.
  [[nodiscard]] std::uint64_t struck() const;
  // How many operations there were at a point.
  [[nodiscard]] std::uint64_t seen(FaultPoint point) const;

  // For the wrappers: counts an operation and says what happens to it. `size` 0: it moves no bytes.
  std::optional<Fault> strike(FaultPoint point, std::uint64_t offset = 0, std::uint64_t size = 0);

 private:
  struct Scripted {
    Fault fault;
    std::uint64_t passed = 0;
    std::uint64_t struck = 0;
  };

  std::optional<Fault> scripted(FaultPoint point);
  std::optional<Fault> random(FaultPoint point, std::uint64_t size);
  [[nodiscard]] std::optional<Fault> full(FaultPoint point,
                                          std::uint64_t offset,
                                          std::uint64_t size) const;

  mutable std::mutex mutex_;
  std::vector<Scripted> script_;
  std::optional<RandomFaults> random_;
  std::mt19937_64 generator_;
  std::optional<std::uint64_t> size_limit_bytes_;
  std::vector<std::uint64_t> seen_ = std::vector<std::uint64_t>(fault_points);
  std::uint64_t struck_ = 0;
  bool released_ = false;
};

// `plan` may be shared and is kept. Files and queues of the result keep what they need.
std::shared_ptr<Storage> make_faulty_storage(std::shared_ptr<Storage> storage,
                                             std::shared_ptr<FaultPlan> plan);

}  // namespace hippogriff
