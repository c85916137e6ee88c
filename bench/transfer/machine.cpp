// Reads /proc and /sys; what cannot be read is left out.
#include "transfer/machine.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

namespace bench {

namespace {

// The value after "name ... :" in a /proc file; "" when there is none.
std::string value_in(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(':');
    if (line.starts_with(name) && colon != std::string::npos) {
      const std::size_t start = line.find_first_not_of(" \t", colon + 1);
      return start == std::string::npos ? "" : line.substr(start);
    }
  }
  return "";
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

nlohmann::json machine_facts() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  utsname kernel{};
  uname(&kernel);
  return {{"processor", value_in("/proc/cpuinfo", "model name")},
          {"cores", CPU_COUNT(&cores)},
          {"memory", value_in("/proc/meminfo", "MemTotal")},
          {"kernel", std::string(kernel.sysname) + " " + kernel.release},
          {"huge_pages", first_line("/sys/kernel/mm/transparent_hugepage/enabled")}};
}

nlohmann::json place_facts(const Place& place) {
  nlohmann::json facts = {{"directory", place.directory},
                          {"filesystem", place.filesystem},
                          {"in_memory", place.in_memory}};
  struct statvfs space{};
  if (statvfs(place.directory.c_str(), &space) == 0) {
    facts["free_bytes"] = space.f_bavail * space.f_frsize;
  }
  struct stat status{};
  if (!place.in_memory && stat(place.directory.c_str(), &status) == 0) {
    const std::filesystem::path link = "/sys/dev/block/" + std::to_string(major(status.st_dev)) +
                                       ":" + std::to_string(minor(status.st_dev));
    std::error_code error;
    const auto drive = std::filesystem::canonical(link, error);
    if (!error) {
      facts["drive"] = drive.filename().string();
      facts["drive_model"] = first_line(drive / "device/model");
      facts["drive_scheduler"] = first_line(drive / "queue/scheduler");
      facts["drive_read_ahead_kb"] = first_line(drive / "queue/read_ahead_kb");
    }
  }
  return facts;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace bench
