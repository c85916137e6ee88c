// Fuzzes what is read of /proc and /sys: whatever the text, what is believed is bounded, and reads
// the same when it is written as the kernel writes it.
#include "base/error.hpp"
#include "base/kernel_text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

namespace {

using namespace hippogriff;  // NOLINT(google-build-using-namespace)

void check_lock(std::string_view line) {
  const auto lock = parse_open_file_lock(line);
  if (!lock) {
    return;
  }
  HIPPO_ASSERT(lock->offset_bytes >= 0);
  std::ostringstream again;
  again << "1: OFDLCK ADVISORY  WRITE -1 " << std::hex << lock->device_major << ':'
        << lock->device_minor << ':' << std::dec << lock->inode << ' ' << lock->offset_bytes
        << " EOF";
  const auto same = parse_open_file_lock(again.str());
  HIPPO_ASSERT(same && same->device_major == lock->device_major &&
               same->device_minor == lock->device_minor && same->inode == lock->inode &&
               same->offset_bytes == lock->offset_bytes);
}

void check_process(std::string_view text) {
  const auto stat = parse_process_stat(text);
  if (!stat) {
    return;
  }
  HIPPO_ASSERT(text.find(')') != std::string_view::npos);
  std::string again = "1 (a ) b) ";
  again += stat->state;
  for (int field = 4; field < 20; ++field) {
    again += " -1";
  }
  again += " " + std::to_string(stat->thread_count) + " 0 " + std::to_string(stat->start_ticks);
  HIPPO_ASSERT(!parse_process_stat(again));
  const auto same = parse_process_stat(again + " 0\n");
  HIPPO_ASSERT(same && same->state == stat->state && same->thread_count == stat->thread_count &&
               same->start_ticks == stat->start_ticks);
}

std::string clock_line(std::string_view name, std::int64_t offset_ns) {
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t nanoseconds = ((offset_ns % second) + second) % second;
  return std::string(name) + "  " + std::to_string((offset_ns - nanoseconds) / second) + "   " +
         std::to_string(nanoseconds) + "\n";
}

void check_clocks(std::string_view text) {
  const auto offsets = parse_clock_offsets(text);
  if (!offsets) {
    return;
  }
  const auto same = parse_clock_offsets(clock_line("monotonic", offsets->monotonic_ns) +
                                        clock_line("boottime", offsets->boottime_ns));
  HIPPO_ASSERT(same && same->monotonic_ns == offsets->monotonic_ns &&
               same->boottime_ns == offsets->boottime_ns);
}

void check_cores(std::string_view text) {
  const auto cores = parse_cpu_max(text);
  HIPPO_ASSERT(!cores || *cores > 0);
  HIPPO_ASSERT(!cores || parse_cpu_max(std::to_string(*cores) + " 1\n") == cores);
}

void check_memory(std::string_view text) {
  const auto bytes = parse_memory(text, "MemAvailable:");
  HIPPO_ASSERT(!bytes || *bytes % 1024 == 0);
  HIPPO_ASSERT(!bytes || parse_memory("MemAvailable: " + std::to_string(*bytes / 1024) + " kB\n",
                                      "MemAvailable:") == bytes);
  const auto number = parse_number(text);
  HIPPO_ASSERT(!number || parse_number(std::to_string(*number) + "\n") == number);
  const auto field = parse_field(text, "file");
  HIPPO_ASSERT(!field || parse_field("file " + std::to_string(*field), "file") == field);
  for (const std::string_view controller : {"", "memory"}) {
    const auto group = parse_cgroup(text, controller);
    HIPPO_ASSERT(!group || group->empty() || (group->starts_with('/') && group->size() > 1));
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  check_process(text);
  check_clocks(text);
  check_cores(text);
  check_memory(text);
  for (std::string_view left = text; !left.empty();) {
    const std::string_view line = left.substr(0, left.find('\n'));
    check_lock(line);
    left.remove_prefix(std::min(line.size() + 1, left.size()));
  }
  return 0;
}
