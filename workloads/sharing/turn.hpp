// The one seam to schedGPU's calls: with --share a program takes its turn before it allocates.
#pragma once

#include "workloads/sharing/options.hpp"

#include <cstddef>
#include <string>

// Without --share nothing waits and nothing is told to anybody. Used from one thread. Throws
// std::runtime_error with the call and its status; NoDeviceMemory when the time was up.
class Turn {
 public:
  explicit Turn(const Options& options);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Waits until so much may be allocated. The first call decides on the device for all.
  void take(std::size_t size_bytes);
  // After the memory has been freed; also a part of what was taken.
  void give(std::size_t size_bytes);

  // The device's name.
  [[nodiscard]] const std::string& device() const { return device_; }

 private:
  bool share_;
  int number_ = -1;  // of the device as schedGPU counts them; below 0: any
  std::size_t held_bytes_ = 0;
  std::string device_;
};
