// What the environment says: read once, at init.
#pragma once

#include "transfer/route.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace hippogriff {

// Sizes in bytes. Every field has its variable; unset ones keep these defaults.
struct Settings {
  std::string device;                                        // HIPPOGRIFF_DEVICE
  std::string trace_file;                                    // HIPPOGRIFF_TRACE
  std::uint64_t pinbuffer_bytes = std::uint64_t{256} << 20;  // HIPPOGRIFF_PINBUFFER
  std::uint64_t parking_bytes = 0;  // HIPPOGRIFF_PARKING; unset: a quarter of memory
  // HIPPOGRIFF_ROUTE: where no route is named, the first of these that is possible; empty: the
  // router's choice.
  std::vector<Route> routes;
  std::uint32_t channels_max = any_channels;                  // HIPPOGRIFF_CHANNELS
  std::uint64_t piece_bytes_max = std::uint64_t{2} << 20;     // HIPPOGRIFF_PIECE; 64 KiB to 2 MiB
  std::uint64_t mapped_after_bytes = std::uint64_t{8} << 30;  // HIPPOGRIFF_MAPPED_AFTER
  std::uint32_t threads_max = 0;                              // HIPPOGRIFF_THREADS; 0: by cores
  std::uint32_t cores = 0;                                    // HIPPOGRIFF_CPUS; 0: usable_cores()
  std::chrono::milliseconds memory_timeout{10'000};           // HIPPOGRIFF_MEMORY_TIMEOUT_MS
  std::filesystem::path calibration_file;                     // HIPPOGRIFF_CALIBRATION
  double host_link_bytes_per_second = 0;  // HIPPOGRIFF_HOST_LINK ("2GB" a second)

  // Throws Error(invalid_argument) naming the variable.
  static Settings from_environment();

  // The most pinned memory of one device, of which all together have pinbuffer_bytes: `host` a
  // quarter, GPUs the rest in equal parts. None less than 64 MiB: with four GPUs it is more than
  // that in all.
  [[nodiscard]] std::uint64_t host_pinbuffer_bytes() const;
  [[nodiscard]] std::uint64_t gpu_pinbuffer_bytes(int gpu_count) const;
};

// Cores this process may use (affinity, and the cgroup's quota where there is one).
std::uint32_t usable_cores();

}  // namespace hippogriff
