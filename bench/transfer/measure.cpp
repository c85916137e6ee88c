// Clocks and counters of this process.
#include "transfer/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

namespace bench {

namespace {

constexpr std::chrono::milliseconds settling_time{60};

double cpu_seconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Reads /proc/self/status; `peak` receives the kernel's high-water mark.
ResidentMemory resident_memory(std::int64_t* peak_bytes = nullptr) {
  ResidentMemory memory;
  std::ifstream status("/proc/self/status");
  std::string name;
  while (status >> name) {
    std::int64_t* to = nullptr;
    if (name == "VmRSS:") {
      to = &memory.total_bytes;
    } else if (name == "RssAnon:") {
      to = &memory.anonymous_bytes;
    } else if (name == "RssFile:") {
      to = &memory.file_bytes;
    } else if (name == "RssShmem:") {
      to = &memory.shared_bytes;
    } else if (name == "VmHWM:") {
      to = peak_bytes;
    }
    std::int64_t kibibytes = 0;
    if (to != nullptr && status >> kibibytes) {
      *to = kibibytes * 1024;
    }
    status.ignore(4096, '\n');
  }
  return memory;
}

void raise(ResidentMemory& peak, const ResidentMemory& seen) {
  peak.total_bytes = std::max(peak.total_bytes, seen.total_bytes);
  peak.anonymous_bytes = std::max(peak.anonymous_bytes, seen.anonymous_bytes);
  peak.file_bytes = std::max(peak.file_bytes, seen.file_bytes);
  peak.shared_bytes = std::max(peak.shared_bytes, seen.shared_bytes);
}

// "5" makes the kernel's high-water mark start again from what is resident now.
void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Meter::Meter(Memory memory) : watched_(memory == Memory::watched) {
  if (watched_) {
    reset_peak();
    before_ = resident_memory();
    peak_ = before_;
    watcher_ = std::thread([this] { watch(); });
  }
  cpu_start_ = cpu_seconds(RUSAGE_SELF);
  start_ = now_seconds();
}

Meter::~Meter() {
  stopping_ = true;
  if (watcher_.joinable()) {
    watcher_.join();
  }
}

void Meter::watch() {
  const double cpu_start = cpu_seconds(RUSAGE_THREAD);
  while (!stopping_) {
    for (int i = 0; i < 10 && !stopping_; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    raise(peak_, resident_memory());
  }
  watcher_cpu_seconds_ = cpu_seconds(RUSAGE_THREAD) - cpu_start;
}

Cost Meter::stop() {
  Cost cost;
  cost.seconds = now_seconds() - start_;
  std::this_thread::sleep_for(settling_time);  // what goes on behind the result counts
  cost.cpu_seconds = cpu_seconds(RUSAGE_SELF) - cpu_start_;
  stopping_ = true;
  if (watcher_.joinable()) {
    watcher_.join();
    cost.cpu_seconds = std::max(0.0, cost.cpu_seconds - watcher_cpu_seconds_);
    std::int64_t kernel_peak = 0;
    raise(peak_, resident_memory(&kernel_peak));
    peak_.total_bytes = std::max(peak_.total_bytes, kernel_peak);
    cost.growth = {peak_.total_bytes - before_.total_bytes,
                   peak_.anonymous_bytes - before_.anonymous_bytes,
                   peak_.file_bytes - before_.file_bytes,
                   peak_.shared_bytes - before_.shared_bytes};
  }
  return cost;
}

}  // namespace bench
