// The files that are moved: their contents, how much of them is in the page cache, verification.
// Throws std::system_error with the path, std::runtime_error for the rest. Offsets in bytes.
#pragma once

#include "transfer/reference_device.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace bench {

inline constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;

struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;

  [[nodiscard]] std::uint64_t end() const { return offset + size; }
};

// A descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags);
  ~Descriptor();

  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;

  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// All or std::runtime_error.
void read_fully(int fd, std::byte* to, std::size_t size, std::uint64_t offset);
void write_fully(int fd, const std::byte* from, std::size_t size, std::uint64_t offset);

// Where files are made: a directory and what lies beneath it.
struct Place {
  std::string directory;
  std::string filesystem;  // "ext4", "tmpfs"
  bool in_memory = false;  // tmpfs: no drive, always cached

  [[nodiscard]] std::string source() const { return directory + "/hippogriff_bench_in.bin"; }

  [[nodiscard]] std::string target() const { return directory + "/hippogriff_bench_out.bin"; }
};

Place find_place(const std::string& directory);

// The bytes of the source file (seed 1) and of the device memory that is written back (seed 2).
void fill_pattern(std::span<std::byte> to, std::uint64_t offset, std::uint64_t seed);
// The offset of the first byte that differs, or UINT64_MAX.
std::uint64_t find_difference(std::span<const std::byte> bytes,
                              std::uint64_t offset,
                              std::uint64_t seed);

// Writes the whole source file and makes it durable.
void create_source(const Place& place, std::uint64_t size);

// Puts exactly `cached` of the first `size` bytes into the page cache, nothing else of them.
void set_cached(const Place& place, std::uint64_t size, std::span<const Extent> cached);
// The share of the extent that is in the page cache, or -1 where the system does not say.
double cached_share(const std::string& path, std::uint64_t size);

// Empties the target file.
void clear_target(const Place& place);

// Everything that is in device memory, or in the target file, against the pattern, with as many
// threads as there are cores; "" when it is right, else what is wrong.
std::string verify_device(ReferenceDevice& device,
                          std::uint64_t address,
                          Extent file,
                          std::uint64_t seed,
                          std::span<std::byte> pinned);
std::string verify_target(const Place& place, std::uint64_t size, std::uint64_t seed, bool whole);
// Fills device memory with the pattern of seed 2 as if it were the file's first bytes.
void fill_device(ReferenceDevice& device,
                 std::uint64_t address,
                 std::uint64_t size,
                 std::span<std::byte> pinned);

}  // namespace bench
