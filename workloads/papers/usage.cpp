// getrusage, and the peak from /proc.
#include "workloads/papers/usage.hpp"

#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// Not ru_maxrss: that begins with what the process that started this one had.
std::uint64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) {
      return kibibytes << 10U;
    }
  }
  throw std::runtime_error("/proc/self/status tells no VmHWM");
}

}  // namespace

Usage usage_now() {
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) != 0) {
    throw std::system_error(errno, std::generic_category(), "getrusage");
  }
  return {.user_seconds = seconds_of(used.ru_utime),
          .system_seconds = seconds_of(used.ru_stime),
          .minor_faults = used.ru_minflt,
          .major_faults = used.ru_majflt,
          .voluntary_switches = used.ru_nvcsw,
          .involuntary_switches = used.ru_nivcsw,
          .peak_resident_bytes = peak_resident_bytes()};
}

std::string to_json(const Usage& usage) {
  std::array<char, 320> text{};
  static_cast<void>(std::snprintf(
      text.data(),
      text.size(),
      R"({"user_seconds": %.6f, "system_seconds": %.6f, "minor_faults": %lld, "major_faults": %lld, )"
      R"("voluntary_switches": %lld, "involuntary_switches": %lld, "peak_resident_bytes": %llu})",
      usage.user_seconds,
      usage.system_seconds,
      static_cast<long long>(usage.minor_faults),
      static_cast<long long>(usage.major_faults),
      static_cast<long long>(usage.voluntary_switches),
      static_cast<long long>(usage.involuntary_switches),
      static_cast<unsigned long long>(usage.peak_resident_bytes)));
  return text.data();
}
