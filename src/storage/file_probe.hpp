// What the system says about an open file: identity, file system, drive, O_DIRECT alignment.
#pragma once

#include "storage/descriptor.hpp"
#include "storage/storage.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace hippogriff {

// What fstatfs tells. A block device is called "block", whatever holds its node.
struct FileSystemKind {
  std::string name;        // "ext4"; "0x…" when the magic number is not in the table
  bool in_memory = false;  // tmpfs, ramfs, hugetlbfs
};

// O_RDONLY, O_WRONLY or O_RDWR.
int open_mode(FileAccess access);

// The access mode of a descriptor allows these (fcntl F_GETFL flags).
bool flags_allow(int descriptor_flags, FileAccess access);

// fstat, and BLKGETSIZE64 for block devices. Throws Error: invalid_argument for what is neither a
// regular file nor a block device, io_error with errno.
FileIdentity identify(int fd, const std::string& path, const char* operation);

// Throws Error(invalid_argument) for an empty file from which bytes can be read, as most of /proc:
// how many there are cannot be known.
void refuse_without_size(int fd,
                         const FileIdentity& identity,
                         const std::string& path,
                         const char* operation);

FileSystemKind filesystem_of(int fd, bool is_block_device);

// The path /proc knows ("/x/y (deleted)" when it is gone), or "file descriptor N".
std::string path_of_descriptor(int fd);

// A second description of the file behind `fd`, with what `flags` say of access, syncing, O_DIRECT.
// Invalid with errno set when the system refuses.
Descriptor reopen(int fd, int flags);

// What statx says of O_DIRECT for a file.
struct DirectAlignment {
  bool told = false;            // the kernel and the file system know (STATX_DIOALIGN)
  std::uint32_t alignment = 0;  // of memory and offset; 0 when told: O_DIRECT is not for this file
};

DirectAlignment direct_alignment_of(int fd);

// Drives and alignments by device number, found once. Thread-safe.
class DeviceCatalog {
 public:
  // The whole drive behind a file: "vda", "nvme0n1"; "" when there is none.
  std::string drive_of(int fd, std::uint64_t device_number);

  // The alignment that O_DIRECT reads keep where the kernel does not tell: the drive's block size,
  // proved by one read the first time. Nothing when reads fail: `why` then says how.
  std::optional<std::uint32_t> proved_alignment(int direct_fd,
                                                const FileIdentity& identity,
                                                std::string& why);

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::string> drives_;
  std::map<std::uint64_t, std::uint32_t> alignments_;
};

}  // namespace hippogriff
