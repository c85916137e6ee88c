// The mountinfo parser: fields by spaces, optional fields up to a lone dash, octal escapes.
#include "storage/mountinfo.hpp"

#include <charconv>
#include <memory>
#include <optional>

namespace hippogriff {
namespace {

// Takes the text up to the next separator; the rest stays in `text`.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view taken = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  return taken;
}

template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value = 0;
  const char* begin = std::to_address(text.begin());
  const char* end = std::to_address(text.end());
  const auto result = std::from_chars(begin, end, value);
  if (text.empty() || result.ec != std::errc{} || result.ptr != end) {
    return std::nullopt;
  }
  return value;
}

bool is_octal(char digit) {
  return digit >= '0' && digit <= '7';
}

// The kernel writes space, tab, newline, backslash and '#' as a backslash and three octal digits.
std::string unescape(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 3 < text.size() && text[i + 1] <= '3' &&
                        is_octal(text[i + 1]) && is_octal(text[i + 2]) && is_octal(text[i + 3]);
    if (escape) {
      const int code = (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0');
      plain.push_back(static_cast<char>(code));
      i += 3;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

std::optional<MountEntry> parse_line(std::string_view line) {
  const auto id = whole_number<std::uint64_t>(take_until(line, ' '));
  const auto parent_id = whole_number<std::uint64_t>(take_until(line, ' '));
  std::string_view device = take_until(line, ' ');
  const auto device_major = whole_number<std::uint32_t>(take_until(device, ':'));
  const auto device_minor = whole_number<std::uint32_t>(device);
  if (!id || !parent_id || !device_major || !device_minor) {
    return std::nullopt;
  }
  MountEntry entry{*id, *parent_id, *device_major, *device_minor, {}, {}, {}, {}, {}};
  entry.root = unescape(take_until(line, ' '));
  entry.mount_point = unescape(take_until(line, ' '));
  entry.options = unescape(take_until(line, ' '));
  while (!line.empty()) {
    if (take_until(line, ' ') == "-") {
      entry.filesystem = unescape(take_until(line, ' '));
      entry.source = unescape(take_until(line, ' '));
      break;
    }
  }
  if (entry.mount_point.empty() || entry.filesystem.empty()) {
    return std::nullopt;
  }
  return entry;
}

bool lies_below(std::string_view path, std::string_view folder) {
  if (folder == "/") {
    return path.starts_with('/');
  }
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

std::vector<MountEntry> parse_mountinfo(std::string_view text) {
  std::vector<MountEntry> entries;
  while (!text.empty()) {
    if (auto entry = parse_line(take_until(text, '\n'))) {
      entries.push_back(std::move(*entry));
    }
  }
  return entries;
}

const MountEntry* mount_of_path(const std::vector<MountEntry>& mounts, std::string_view path) {
  const MountEntry* best = nullptr;
  for (const MountEntry& mount : mounts) {
    const bool longer = best == nullptr || mount.mount_point.size() >= best->mount_point.size();
    if (longer && lies_below(path, mount.mount_point)) {
      best = &mount;
    }
  }
  return best;
}

}  // namespace hippogriff
