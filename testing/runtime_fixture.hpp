// A runtime over chosen devices and storage, with files and an oracle, for tests of transfers.
#pragma once

#include "device/host_device.hpp"
#include "testing/bytes.hpp"
#include "testing/temporary_folder.hpp"
#include "transfer/runtime.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

namespace hippogriff {

// No wait of a test is meant to take that long.
inline constexpr std::chrono::milliseconds long_enough{60'000};

// Leaves the file in the page cache; a test that wants it on the drive drops it from there.
inline void write_whole(const std::string& path, const std::vector<std::byte>& bytes) {
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0) << path;
  std::size_t put = 0;
  while (put < bytes.size()) {
    const ssize_t count = write(fd, bytes.data() + put, bytes.size() - put);
    ASSERT_GT(count, 0);
    put += static_cast<std::size_t>(count);
  }
  ASSERT_EQ(close(fd), 0);
}

inline std::vector<std::byte> read_whole(const std::string& path) {
  std::vector<std::byte> bytes;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return bytes;
  }
  bytes.resize(static_cast<std::size_t>(lseek(fd, 0, SEEK_END)));
  const ssize_t count = pread(fd, bytes.data(), bytes.size(), 0);
  close(fd);
  EXPECT_EQ(count, static_cast<ssize_t>(bytes.size()));
  return bytes;
}

inline void drop_cache(const std::string& path, std::uint64_t offset, std::uint64_t size) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  fsync(fd);
  EXPECT_EQ(
      posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_DONTNEED),
      0);
  close(fd);
}

inline Settings test_settings() {
  Settings settings;
  settings.pinbuffer_bytes = std::uint64_t{64} << 20;
  settings.parking_bytes = std::uint64_t{32} << 20;
  settings.threads_max = 8;
  settings.memory_timeout = std::chrono::milliseconds(2000);
  return settings;
}

// A device with a link, so that copies are copies and every lane is taken.
inline std::shared_ptr<Device> linked_device(std::uint64_t memory_bytes = std::uint64_t{256}
                                                                          << 20) {
  HostDeviceOptions options;
  options.name = "linked";
  options.memory_bytes = memory_bytes;
  options.link_bytes_per_second = 50e9;
  return make_host_device(options);
}

inline std::shared_ptr<Device> plain_device(std::uint64_t memory_bytes = std::uint64_t{256} << 20) {
  HostDeviceOptions options;
  options.memory_bytes = memory_bytes;
  return make_host_device(options);
}

// Beside whose channels windows are mapped, once somebody asked, as on a GPU.
inline std::shared_ptr<Device> mixing_device() {
  return make_host_device({.name = "mixing",
                           .memory_bytes = std::uint64_t{1} << 30,
                           .link_bytes_per_second = 50e9,
                           .registers_aside = true});
}

// Bytes of device memory of a host device: its addresses are pointers.
inline std::byte* device_bytes(DeviceAddress address) {
  return reinterpret_cast<std::byte*>(address.value);
}

}  // namespace hippogriff
