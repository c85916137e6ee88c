// From the process's own group up to the root of what it sees.
#include "base/machine_memory.hpp"

#include "base/kernel_text.hpp"

#include <algorithm>
#include <array>
#include <fstream>

namespace hippogriff {

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');
  return text;
}

// What a version of control groups calls things.
struct Words {
  const char* controller;
  const char* folder;
  std::array<const char*, 2> most;  // the second one slows down, and does not end
  const char* used;
  std::array<const char*, 2> cached;  // that can be taken back
};

constexpr std::array<Words, 2> versions{
    {{"", "", {"/memory.max", "/memory.high"}, "/memory.current", {"inactive_file", "active_file"}},
     {"memory",
      "/memory",
      {"/memory.limit_in_bytes", "/"},
      "/memory.usage_in_bytes",
      {"total_inactive_file", "total_active_file"}}}};

void limit_by(const std::string& group, const Words& words, MachineMemory& memory) {
  std::uint64_t most = UINT64_MAX;
  for (const char* limit : words.most) {
    most = std::min(most, parse_number(text_of(group + limit)).value_or(UINT64_MAX));
  }
  if (most == UINT64_MAX) {
    return;
  }
  memory.total = std::min(memory.total, most);
  std::uint64_t used = parse_number(text_of(group + words.used)).value_or(0);
  const std::string parts = text_of(group + "/memory.stat");
  for (const char* part : words.cached) {
    used -= std::min(used, parse_field(parts, part).value_or(0));
  }
  memory.available = std::min(memory.available, most - std::min(most, used));
}

}  // namespace

MachineMemory machine_memory(const std::string& root) {
  const std::string machine = text_of(root + "/proc/meminfo");
  MachineMemory memory{.total = parse_memory(machine, "MemTotal:").value_or(UINT64_MAX),
                       .available = parse_memory(machine, "MemAvailable:").value_or(UINT64_MAX)};
  const std::string groups = text_of(root + "/proc/self/cgroup");
  for (const Words& words : versions) {
    const std::string top = root + "/sys/fs/cgroup" + words.folder;
    std::string own(parse_cgroup(groups, words.controller).value_or(""));
    for (; !own.empty(); own.resize(own.rfind('/'))) {
      limit_by(top + own, words, memory);
    }
    // A container's own is the root of what it sees.
    limit_by(top, words, memory);
  }
  return memory;
}

std::uint64_t total_memory_bytes() {
  static const std::uint64_t total = machine_memory().total;
  return total == UINT64_MAX ? 0 : total;
}

}  // namespace hippogriff
