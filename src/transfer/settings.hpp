// What the environment says: read once, at init.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace hippogriff {

// Sizes in bytes. Every field has its variable; unset ones keep these defaults.
struct Settings {
  std::string device;                                        // HIPPOGRIFF_DEVICE
  std::string trace_file;                                    // HIPPOGRIFF_TRACE
  std::uint64_t pinbuffer_bytes = std::uint64_t{256} << 20;  // HIPPOGRIFF_PINBUFFER
  std::uint64_t parking_bytes = 0;  // HIPPOGRIFF_PARKING; 0: a quarter of memory
  std::uint64_t mapped_after_bytes = std::uint64_t{8} << 30;  // HIPPOGRIFF_MAPPED_AFTER
  std::uint32_t threads_max = 0;                              // HIPPOGRIFF_THREADS; 0: by cores
  std::uint32_t cores = 0;                                    // HIPPOGRIFF_CPUS; 0: usable_cores()
  std::chrono::milliseconds memory_timeout{10'000};           // HIPPOGRIFF_MEMORY_TIMEOUT_MS
  std::filesystem::path calibration_file;                     // HIPPOGRIFF_CALIBRATION
  double host_link_bytes_per_second = 0;  // HIPPOGRIFF_HOST_LINK ("2GB" a second)

  // Throws Error(invalid_argument) naming the variable.
  static Settings from_environment();
};

// Cores this process may use (affinity, and the cgroup's quota where there is one).
std::uint32_t usable_cores();

}  // namespace hippogriff
