// Environment variables and what the machine has.
#include "transfer/settings.hpp"

#include "base/error.hpp"
#include "base/kernel_text.hpp"
#include "base/machine_memory.hpp"
#include "base/size.hpp"
#include "transfer/calibration.hpp"
#include "transfer/work_map.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

namespace hippogriff {

namespace {

constexpr std::uint64_t pinbuffer_bytes_min = std::uint64_t{64} << 20;  // of a device

std::optional<std::string> variable(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): only at init
  if (text == nullptr || *text == '\0') {
    return std::nullopt;
  }
  return text;
}

void read_size(const char* name, std::uint64_t& value) {
  if (const auto text = variable(name)) {
    try {
      value = parse_size(*text);
    } catch (const Error& error) {
      throw_invalid(std::string("read ") + name, error.failure().detail);
    }
  }
}

template <typename Number>
void read_number(const char* name, Number& value) {
  if (const auto text = variable(name)) {
    const char* end = text->data() + text->size();
    const auto result = std::from_chars(text->data(), end, value);
    if (result.ec == std::errc::result_out_of_range && result.ptr == end) {
      throw_invalid(std::string("read ") + name, "'" + *text + "' is out of range");
    }
    if (result.ec != std::errc{} || result.ptr != end) {
      throw_invalid(std::string("read ") + name, "'" + *text + "' is not a whole number");
    }
  }
}

// "direct,pipelined"; "auto" and nothing are the router's choice.
std::vector<Route> read_routes(const char* name) {
  std::vector<Route> routes;
  std::stringstream words(variable(name).value_or("auto"));
  for (std::string word; std::getline(words, word, ',');) {
    const auto known = {
        Route::automatic, Route::direct, Route::mapped, Route::pipelined, Route::parked};
    const auto* const route = std::find_if(
        known.begin(), known.end(), [&](Route each) { return route_name(each) == word; });
    if (route == known.end()) {
      throw_invalid(std::string("read ") + name,
                    "'" + word + "' is none of auto, direct, mapped, pipelined and parked");
    }
    routes.push_back(*route);
  }
  return routes.empty() || routes.front() == Route::automatic ? std::vector<Route>{} : routes;
}

// Whole pages, of which a slot of the pinbuffer holds as many.
std::uint64_t read_piece(const char* name, std::uint64_t most) {
  constexpr std::uint64_t least = std::uint64_t{64} << 10;
  std::uint64_t size = most;
  read_size(name, size);
  if (size < least || size > most || size % WorkMap::cut_bytes != 0) {
    throw_invalid(std::string("read ") + name,
                  "it is from 64KiB to " + std::to_string(most >> 20U) + "MiB, in steps of 4 KiB");
  }
  return size;
}

std::uint32_t read_cgroup_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string line;
  std::getline(file, line);
  return parse_cpu_max(line).value_or(UINT32_MAX);
}

// Every transfer is planned by it, and reading takes longer than planning: once a second will do.
std::uint32_t cgroup_cores() {
  using Clock = std::chrono::steady_clock;
  static std::atomic<std::uint32_t> cores{0};
  static std::atomic<Clock::rep> look_again{0};
  const auto now = Clock::now();
  if (cores == 0 || now.time_since_epoch().count() >= look_again) {
    cores = read_cgroup_cores();
    look_again = (now + std::chrono::seconds(1)).time_since_epoch().count();
  }
  return cores;
}

}  // namespace

std::uint32_t usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::uint32_t count = 1;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
    count = static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&cores)));
  }
  return std::min(count, cgroup_cores());
}

std::uint64_t Settings::host_pinbuffer_bytes() const {
  return std::max(pinbuffer_bytes / 4, pinbuffer_bytes_min);
}

std::uint64_t Settings::gpu_pinbuffer_bytes(int gpu_count) const {
  const std::uint64_t of_gpus = pinbuffer_bytes - pinbuffer_bytes / 4;
  return std::max(of_gpus / static_cast<std::uint64_t>(std::max(1, gpu_count)),
                  pinbuffer_bytes_min);
}

Settings Settings::from_environment() {
  Settings settings;
  settings.device = variable("HIPPOGRIFF_DEVICE").value_or("");
  settings.trace_file = variable("HIPPOGRIFF_TRACE").value_or("");
  read_size("HIPPOGRIFF_PINBUFFER", settings.pinbuffer_bytes);
  const bool parks = variable("HIPPOGRIFF_PARKING") != "off";
  if (parks) {
    read_size("HIPPOGRIFF_PARKING", settings.parking_bytes);
  }
  settings.routes = read_routes("HIPPOGRIFF_ROUTE");
  read_number("HIPPOGRIFF_CHANNELS", settings.channels_max);
  if (settings.channels_max == 0) {
    throw_invalid("read HIPPOGRIFF_CHANNELS", "'0' is too few: at least 1");
  }
  settings.piece_bytes_max = read_piece("HIPPOGRIFF_PIECE", settings.piece_bytes_max);
  read_size("HIPPOGRIFF_MAPPED_AFTER", settings.mapped_after_bytes);
  read_number("HIPPOGRIFF_THREADS", settings.threads_max);
  read_number("HIPPOGRIFF_CPUS", settings.cores);
  std::int64_t memory_timeout_ms = settings.memory_timeout.count();
  read_number("HIPPOGRIFF_MEMORY_TIMEOUT_MS", memory_timeout_ms);
  settings.memory_timeout = std::chrono::milliseconds(memory_timeout_ms);
  std::uint64_t link = 0;
  read_size("HIPPOGRIFF_HOST_LINK", link);
  settings.host_link_bytes_per_second = static_cast<double>(link);
  settings.calibration_file = CalibrationStore::default_file();
  if (parks && settings.parking_bytes == 0) {
    const std::uint64_t memory = machine_memory().total;
    settings.parking_bytes = memory == UINT64_MAX ? std::uint64_t{1} << 30 : memory / 4;
  }
  if (settings.threads_max == 0) {
    const std::uint32_t cores = settings.cores == 0 ? usable_cores() : settings.cores;
    settings.threads_max = std::clamp(cores, 4U, 16U) + 4;
  }
  settings.threads_max = std::clamp(settings.threads_max, 2U, 256U);
  return settings;
}

}  // namespace hippogriff
