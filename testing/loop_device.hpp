// A block device for a test, where the machine lets it: a file behind a loop device.
#pragma once

#include "storage/descriptor.hpp"
#include "testing/temporary_folder.hpp"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace hippogriff {

// The device goes with this object, also when the process is killed.
class LoopDevice {
 public:
  LoopDevice(std::uint64_t size_bytes, std::uint32_t block_bytes) {
    const std::string file = folder_.file("behind");
    const Descriptor backing(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!backing.valid() || ::ftruncate(backing.get(), static_cast<off_t>(size_bytes)) != 0) {
      obstacle_ = "no file for it: " + text_of(errno);
      return;
    }
    const Descriptor control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    if (!control.valid()) {
      obstacle_ = "/dev/loop-control: " + text_of(errno);
      return;
    }
    configure(control, backing, block_bytes);
  }

  // "" when there is one.
  [[nodiscard]] const std::string& obstacle() const { return obstacle_; }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static std::string text_of(int errno_value) { return ::strerrordesc_np(errno_value); }

  // Others may take the free device that the kernel names.
  void configure(const Descriptor& control, const Descriptor& backing, std::uint32_t block_bytes) {
    constexpr int attempts_max = 100;
    for (int attempt = 0; attempt < attempts_max; ++attempt) {
      const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
      path_ = "/dev/loop" + std::to_string(number);
      device_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
      if (number < 0 || !device_.valid()) {
        obstacle_ = path_ + ": " + text_of(errno);
        return;
      }
      loop_config configuration{};
      configuration.fd = static_cast<std::uint32_t>(backing.get());
      configuration.block_size = block_bytes;
      configuration.info.lo_flags = LO_FLAGS_AUTOCLEAR;
      if (::ioctl(device_.get(), LOOP_CONFIGURE, &configuration) == 0) {
        return;
      }
      if (errno != EBUSY) {
        break;
      }
    }
    obstacle_ = path_ + ": " + text_of(errno);
  }

  TemporaryFolder folder_;
  std::string path_;
  Descriptor device_;
  std::string obstacle_;
};

}  // namespace hippogriff
