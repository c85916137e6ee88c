// Facts of drives and mounts, read from /sys and /proc/self/mountinfo.
#include "storage/drives.hpp"

#include "base/error.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <system_error>

namespace hippogriff {
namespace {

namespace fs = std::filesystem;

// The size file of a block device counts in these, whatever the drive's own blocks are.
constexpr std::uint64_t sector_bytes = 512;
constexpr std::uint64_t kibibyte = 1024;
constexpr std::size_t attribute_bytes_max = 4096;
constexpr std::size_t mountinfo_bytes_max = std::size_t{16} << 20;

std::string without_white_space_around(const std::string& text) {
  const char* white = " \t\n";
  const std::size_t begin = text.find_first_not_of(white);
  if (begin == std::string::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(white) - begin + 1);
}

// One attribute of /sys, without the white space around it; "" when it cannot be read.
std::string read_attribute(const fs::path& path) {
  std::ifstream file(path);
  std::string text(attribute_bytes_max, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return without_white_space_around(text);
}

template <typename Number>
std::optional<Number> read_number(const fs::path& path) {
  const std::string text = read_attribute(path);
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (text.empty() || result.ec != std::errc{} || result.ptr != end) {
    return std::nullopt;
  }
  return value;
}

// A number of units of so many bytes; 0 when it cannot be read, or is none.
std::uint64_t read_bytes(const fs::path& path, std::uint64_t unit_bytes) {
  const std::uint64_t units = read_number<std::uint64_t>(path).value_or(0);
  return units > UINT64_MAX / unit_bytes ? 0 : units * unit_bytes;
}

std::uint32_t count_entries(const fs::path& folder) {
  std::error_code error;
  std::uint32_t count = 0;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    ++count;
  }
  return count;
}

// The folder of a block device number, a drive's or a partition's; empty when there is none.
fs::path device_folder(std::uint64_t device_number, const SystemTrees& trees) {
  const std::string number =
      std::to_string(major(device_number)) + ":" + std::to_string(minor(device_number));
  std::error_code error;
  fs::path folder = fs::canonical(trees.sys / "dev" / "block" / number, error);
  return error ? fs::path{} : folder;
}

// The same of the whole drive behind it.
fs::path drive_folder(std::uint64_t device_number, const SystemTrees& trees) {
  fs::path folder = device_folder(device_number, trees);
  std::error_code error;
  const bool partition = !folder.empty() && fs::exists(folder / "partition", error);
  return partition ? folder.parent_path() : folder;
}

// Of "mq-deadline [none] kyber", the one in brackets.
std::string chosen_of(const std::string& choices) {
  const std::size_t begin = choices.find('[');
  const std::size_t end = choices.find(']', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) {
    return choices;
  }
  return without_white_space_around(choices.substr(begin + 1, end - begin - 1));
}

bool is_memory_disk(const std::string& name) {
  constexpr std::array<const char*, 3> prefixes = {"loop", "ram", "zram"};
  return std::any_of(prefixes.begin(), prefixes.end(), [&name](const char* prefix) {
    return name.starts_with(prefix);
  });
}

fs::path mountinfo_path(const SystemTrees& trees) {
  return trees.proc / "self" / "mountinfo";
}

// Nothing when it cannot be read; errno tells why.
std::optional<std::string> mountinfo_text(const SystemTrees& trees) {
  errno = 0;
  std::ifstream file(mountinfo_path(trees));
  if (!file) {
    return std::nullopt;
  }
  // /proc tells no size: read to the end, bounded.
  std::string text;
  std::array<char, 65536> piece{};
  while (file && text.size() < mountinfo_bytes_max) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) {
    return std::nullopt;
  }
  return text;
}

// btrfs and others number their files by devices that no drive has: the mount's source names one.
std::string drive_of_source(const std::string& source, const SystemTrees& trees) {
  struct stat status{};
  if (!source.starts_with('/') || ::stat(source.c_str(), &status) != 0 ||
      !S_ISBLK(status.st_mode)) {
    return {};
  }
  return drive_name(status.st_rdev, trees);
}

}  // namespace

std::string drive_name(std::uint64_t device_number, const SystemTrees& trees) {
  return drive_folder(device_number, trees).filename().string();
}

std::string drive_of_mount(std::uint64_t mount_id, const SystemTrees& trees) {
  const auto mounts = parse_mountinfo(mountinfo_text(trees).value_or(""));
  const auto mount =
      std::find_if(mounts.begin(), mounts.end(), [mount_id](const MountEntry& entry) {
        return entry.id == mount_id;
      });
  return mount == mounts.end() ? std::string{} : drive_of_source(mount->source, trees);
}

std::optional<std::uint32_t> logical_block_bytes(std::uint64_t device_number,
                                                 const SystemTrees& trees) {
  const fs::path folder = drive_folder(device_number, trees);
  if (folder.empty()) {
    return std::nullopt;
  }
  return read_number<std::uint32_t>(folder / "queue" / "logical_block_size");
}

std::optional<DriveFacts> drive_facts(const std::string& name, const SystemTrees& trees) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    return std::nullopt;
  }
  const fs::path folder = trees.sys / "block" / name;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return std::nullopt;
  }
  const fs::path queue = folder / "queue";
  DriveFacts facts;
  facts.name = name;
  facts.model = read_attribute(folder / "device" / "model");
  facts.size_bytes = read_bytes(folder / "size", sector_bytes);
  if (const auto rotational = read_number<int>(queue / "rotational")) {
    facts.rotational = *rotational != 0;
  }
  facts.logical_block_bytes = read_number<std::uint32_t>(queue / "logical_block_size").value_or(0);
  facts.physical_block_bytes =
      read_number<std::uint32_t>(queue / "physical_block_size").value_or(0);
  facts.request_bytes_max = read_bytes(queue / "max_sectors_kb", kibibyte);
  facts.request_count_max = read_number<std::uint32_t>(queue / "nr_requests").value_or(0);
  facts.request_queue_count = count_entries(folder / "mq");
  facts.readahead_bytes = read_bytes(queue / "read_ahead_kb", kibibyte);
  facts.scheduler = chosen_of(read_attribute(queue / "scheduler"));
  facts.numa_node = std::max(read_number<int>(folder / "device" / "numa_node").value_or(-1), -1);
  return facts;
}

std::vector<DriveFacts> list_drives(const SystemTrees& trees) {
  std::vector<DriveFacts> drives;
  std::error_code error;
  for (fs::directory_iterator entry(trees.sys / "block", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    auto facts = is_memory_disk(name) ? std::nullopt : drive_facts(name, trees);
    if (facts && facts->size_bytes > 0) {
      drives.push_back(std::move(*facts));
    }
  }
  std::sort(drives.begin(), drives.end(), [](const DriveFacts& left, const DriveFacts& right) {
    return left.name < right.name;
  });
  return drives;
}

std::vector<MountEntry> read_mounts(const SystemTrees& trees) {
  const auto text = mountinfo_text(trees);
  if (!text) {
    throw_io("read", mountinfo_path(trees).string(), no_offset, errno == 0 ? EIO : errno);
  }
  return parse_mountinfo(*text);
}

PathFacts path_facts(const std::string& path, const SystemTrees& trees) {
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  if (error) {
    throw_io("find", path, no_offset, error.value());
  }
  struct stat status{};
  struct statvfs space{};
  if (::stat(canonical.c_str(), &status) != 0 || ::statvfs(canonical.c_str(), &space) != 0) {
    throw_io("stat", path, no_offset, errno);
  }
  PathFacts facts;
  facts.path = canonical.string();
  facts.size_bytes = std::uint64_t{space.f_blocks} * space.f_frsize;
  facts.free_bytes = std::uint64_t{space.f_bavail} * space.f_frsize;
  const auto mounts = read_mounts(trees);
  if (S_ISBLK(status.st_mode)) {
    // What is mounted where its node lies says nothing of it.
    facts.filesystem = "block";
    facts.source = facts.path;
    const fs::path folder = device_folder(status.st_rdev, trees);
    facts.size_bytes = read_bytes(folder / "size", sector_bytes);
    facts.free_bytes = 0;
  } else if (const MountEntry* mount = mount_of_path(mounts, facts.path)) {
    facts.mount_point = mount->mount_point;
    facts.filesystem = mount->filesystem;
    facts.source = mount->source;
    facts.options = mount->options;
  }
  const std::uint64_t number = S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev;
  std::string name = drive_name(number, trees);
  if (name.empty()) {
    name = drive_of_source(facts.source, trees);
  }
  facts.drive = drive_facts(name, trees);
  return facts;
}

}  // namespace hippogriff
