// Words by white space; a number is a whole word.
#include "base/kernel_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <memory>
#include <system_error>

namespace hippogriff {

namespace {

constexpr std::string_view white = " \t\n";

// The next word of a text, which is shortened by it.
std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(white), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(white));
  text.remove_prefix(word.size());
  return word;
}

template <typename Number>
std::optional<Number> whole_number(std::string_view text, int base = 10) {
  Number value = 0;
  const char* begin = std::to_address(text.begin());
  const char* end = std::to_address(text.end());
  const auto result = std::from_chars(begin, end, value, base);
  if (text.empty() || result.ec != std::errc{} || result.ptr != end) {
    return std::nullopt;
  }
  return value;
}

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

// What comes before the next colon, which goes, too.
std::string_view take_field(std::string_view& line) {
  const std::string_view field = line.substr(0, line.find(':'));
  line.remove_prefix(std::min(field.size() + 1, line.size()));
  return field;
}

// "cpu,memory" lists "memory", and "" itself alone.
bool lists(std::string_view list, std::string_view name) {
  while (!list.empty() && !name.empty()) {
    const std::string_view each = list.substr(0, list.find(','));
    if (each == name) {
      return true;
    }
    list.remove_prefix(std::min(each.size() + 1, list.size()));
  }
  return list.empty() && name.empty();
}

// What follows the first word of the line that begins with `name`; empty where there is none.
std::string_view line_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (take_word(line) == name) {
      return line;
    }
  }
  return {};
}

bool is_integer(std::string_view word) {
  word.remove_prefix(word.starts_with('-') ? 1 : 0);
  return !word.empty() &&
         std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "monotonic 3600 500": seconds, which may be negative, and nanoseconds, which may not.
std::optional<std::int64_t> take_clock_offset(std::string_view& text, std::string_view clock) {
  constexpr std::int64_t ns_per_second = 1'000'000'000;
  constexpr std::int64_t seconds_max = INT64_MAX / ns_per_second - 1;
  const std::string_view name = take_word(text);
  const auto seconds = whole_number<std::int64_t>(take_word(text));
  const auto nanoseconds = whole_number<std::int64_t>(take_word(text));
  const bool believed = name == clock && seconds && nanoseconds && *seconds >= -seconds_max &&
                        *seconds <= seconds_max && *nanoseconds >= 0 &&
                        *nanoseconds < ns_per_second;
  return believed ? std::optional(*seconds * ns_per_second + *nanoseconds) : std::nullopt;
}

}  // namespace

std::optional<OpenFileLock> parse_open_file_lock(std::string_view line) {
  static_cast<void>(take_word(line));  // its number
  if (take_word(line) != "OFDLCK") {
    return std::nullopt;
  }
  for (int skipped = 0; skipped < 3; ++skipped) {
    static_cast<void>(take_word(line));
  }
  std::string_view file = take_word(line);
  std::array<std::optional<std::uint32_t>, 2> device;
  for (auto& part : device) {
    const std::size_t colon = std::min(file.find(':'), file.size());
    part = whole_number<std::uint32_t>(file.substr(0, colon), 16);
    file.remove_prefix(std::min(colon + 1, file.size()));
  }
  const auto inode = whole_number<std::uint64_t>(file);
  const auto offset = whole_number<std::int64_t>(take_word(line));
  if (!device[0] || !device[1] || !inode || !offset || *offset < 0) {
    return std::nullopt;
  }
  return OpenFileLock{.device_major = *device[0],
                      .device_minor = *device[1],
                      .inode = *inode,
                      .offset_bytes = *offset};
}

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  // The name, field 2, in parentheses, may hold anything.
  constexpr int threads_field = 20;
  constexpr int start_field = 22;
  text.remove_prefix(std::min(text.rfind(')'), text.size()));
  if (text.empty() || take_word(text) != ")") {
    return std::nullopt;
  }
  const std::string_view state = take_word(text);
  if (state.size() != 1) {
    return std::nullopt;
  }
  std::optional<std::uint64_t> threads;
  std::optional<std::uint64_t> start;
  for (int field = 4; field <= start_field; ++field) {
    const std::string_view word = take_word(text);
    if (!is_integer(word)) {
      return std::nullopt;
    }
    if (field == threads_field) {
      threads = whole_number<std::uint64_t>(word);
    } else if (field == start_field) {
      start = whole_number<std::uint64_t>(word);
    }
  }
  if (!threads || !start || text.empty()) {
    return std::nullopt;
  }
  return ProcessStat{.state = state.front(), .thread_count = *threads, .start_ticks = *start};
}

std::optional<ClockOffsets> parse_clock_offsets(std::string_view text) {
  const auto monotonic = take_clock_offset(text, "monotonic");
  const auto boottime = take_clock_offset(text, "boottime");
  if (!monotonic || !boottime) {
    return std::nullopt;
  }
  return ClockOffsets{.monotonic_ns = *monotonic, .boottime_ns = *boottime};
}

std::optional<std::uint32_t> parse_cpu_max(std::string_view text) {
  const auto quota = whole_number<std::uint64_t>(take_word(text));
  const auto period = whole_number<std::uint64_t>(take_word(text));
  if (!quota || !period || *quota == 0 || *period == 0) {
    return std::nullopt;
  }
  const std::uint64_t cores = (*quota - 1) / *period + 1;
  return cores <= UINT32_MAX ? std::optional(static_cast<std::uint32_t>(cores)) : std::nullopt;
}

std::optional<std::uint64_t> parse_memory(std::string_view text, std::string_view name) {
  constexpr std::uint64_t kibibyte = 1024;
  std::string_view line = line_of(text, name);
  const auto kib = whole_number<std::uint64_t>(take_word(line));
  const bool believed = kib && *kib <= UINT64_MAX / kibibyte && take_word(line) == "kB";
  return believed ? std::optional(*kib * kibibyte) : std::nullopt;
}

std::optional<std::uint64_t> parse_field(std::string_view text, std::string_view name) {
  return parse_number(line_of(text, name));
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  const auto number = whole_number<std::uint64_t>(take_word(text));
  return take_word(text).empty() ? number : std::nullopt;
}

std::optional<std::string_view> parse_cgroup(std::string_view text, std::string_view controller) {
  while (!text.empty()) {
    std::string_view line = take_line(text);
    static_cast<void>(take_field(line));  // its number
    const std::string_view controllers = take_field(line);
    if (lists(controllers, controller) && line.starts_with('/')) {
      const bool outside = line == "/.." || line.starts_with("/../");
      return outside ? std::nullopt : std::optional(line == "/" ? line.substr(1) : line);
    }
  }
  return std::nullopt;
}

}  // namespace hippogriff
