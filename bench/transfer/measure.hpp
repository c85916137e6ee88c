// What one repetition costs: seconds, CPU seconds of the process, growth of its resident memory.
#pragma once

#include <sys/resource.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace bench {

double now_seconds();

// Resident memory of this process, in bytes, by what is behind it.
struct ResidentMemory {
  std::int64_t total_bytes = 0;
  std::int64_t anonymous_bytes = 0;
  std::int64_t file_bytes = 0;    // mapped page cache
  std::int64_t shared_bytes = 0;  // mapped tmpfs
};

struct Cost {
  double seconds = 0;
  double cpu_seconds = 0;
  ResidentMemory growth;               // largest seen, less what was there at the start
  std::int64_t kept_growth_bytes = 0;  // of it, what the contender keeps for every transfer to come
};

// Measures from construction to stop(). For runs of 20 ms and more a thread of its own looks at the
// resident memory every 10 ms (its CPU seconds are taken out); the total's peak is the kernel's
// own.
class Meter {
 public:
  enum class Memory : std::uint8_t { ignored, watched };

  explicit Meter(Memory memory);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  Cost stop();

 private:
  void watch();

  bool watched_;
  ResidentMemory before_;
  ResidentMemory peak_;
  std::atomic<bool> stopping_ = false;
  double watcher_cpu_seconds_ = 0;
  std::thread watcher_;
  double cpu_start_ = 0;
  double start_ = 0;
};

}  // namespace bench
