// What /sys and /proc know of drives and mounts, for people and for the router's keys.
#pragma once

#include "storage/mountinfo.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace hippogriff {

// Where to look: the machine's own trees, or a test's.
struct SystemTrees {
  std::filesystem::path sys = "/sys";
  std::filesystem::path proc = "/proc";
};

// One drive. Sizes in bytes; 0 and empty where the system does not say.
struct DriveFacts {
  std::string name;  // "nvme0n1"
  std::string model;
  std::uint64_t size_bytes = 0;
  std::optional<bool> rotational;
  std::uint32_t logical_block_bytes = 0;
  std::uint32_t physical_block_bytes = 0;
  std::uint64_t request_bytes_max = 0;
  std::uint32_t request_count_max = 0;    // that the kernel keeps for it, in each of
  std::uint32_t request_queue_count = 0;  // so many queues
  std::uint64_t readahead_bytes = 0;
  std::string scheduler;  // "none", "mq-deadline"
  int numa_node = -1;
};

// Where a path lives.
struct PathFacts {
  std::string path;  // as asked, made absolute
  std::string mount_point;
  std::string filesystem;  // "block" for a block device: no mount, and nothing free
  std::string source;      // "/dev/vda1", "tmpfs", "server:/export"
  std::string options;     // of the mount, as mountinfo prints them
  std::uint64_t size_bytes = 0;
  std::uint64_t free_bytes = 0;  // for an unprivileged writer
  std::optional<DriveFacts> drive;
};

// The whole drive of a block device number: partitions give their parent, dm and md themselves; ""
// when the system has no such device.
std::string drive_name(std::uint64_t device_number, const SystemTrees& trees = {});

// The drive behind a mount's source, by the mount's number (statx's); "" when there is none. For
// file systems such as btrfs, whose device numbers are no drive's.
std::string drive_of_mount(std::uint64_t mount_id, const SystemTrees& trees = {});

// The size of a drive's logical block, by a device number of it or of one of its partitions.
std::optional<std::uint32_t> logical_block_bytes(std::uint64_t device_number,
                                                 const SystemTrees& trees = {});

// Facts of a drive by its name; nothing when there is none.
std::optional<DriveFacts> drive_facts(const std::string& name, const SystemTrees& trees = {});

// All drives with a size, loop and RAM disks left out, by name.
std::vector<DriveFacts> list_drives(const SystemTrees& trees = {});

// This process's mounts. Throws Error(io_error) when they cannot be read.
std::vector<MountEntry> read_mounts(const SystemTrees& trees = {});

// The mount and drive of an existing path. Throws Error(io_error).
PathFacts path_facts(const std::string& path, const SystemTrees& trees = {});

}  // namespace hippogriff
