// What the device suites share: a fixture over a factory, buffers that clean up, patterns, gates.
#pragma once

#include "base/page_size.hpp"
#include "device/device.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::device_testing {

using namespace std::chrono_literals;

// Far more than any step of these suites needs: a wait that ends with it is a failure.
inline constexpr std::chrono::seconds patience{20};

// Factory is a type with `static std::shared_ptr<Device> make()`. Null skips the test: the factory
// says why with GTEST_SKIP's reason from `static std::string why_absent()`.
template <typename Factory>
class DeviceFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = Factory::make();
    if (device_ == nullptr) {
      GTEST_SKIP() << Factory::why_absent();
    }
    device_->make_current();
  }

  [[nodiscard]] Device& device() { return *device_; }

 private:
  std::shared_ptr<Device> device_;
};

// Device memory for one test. Work that uses it must be complete when it goes.
class DeviceBuffer {
 public:
  DeviceBuffer(Device& device, std::size_t size_bytes)
      : device_(device), address_(device.allocate(size_bytes)) {}

  ~DeviceBuffer() { device_.release(address_); }

  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  DeviceBuffer(DeviceBuffer&&) = delete;
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;

  [[nodiscard]] DeviceAddress address() const { return address_; }

 private:
  Device& device_;
  DeviceAddress address_;
};

// Pinned memory for one test.
class PinnedBuffer {
 public:
  PinnedBuffer(Device& device, std::size_t size_bytes)
      : device_(device), memory_(device.allocate_pinned(size_bytes)), size_bytes_(size_bytes) {}

  ~PinnedBuffer() { device_.release_pinned(memory_); }

  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  PinnedBuffer(PinnedBuffer&&) = delete;
  PinnedBuffer& operator=(PinnedBuffer&&) = delete;

  [[nodiscard]] std::byte* data() const { return memory_; }

  [[nodiscard]] std::span<std::byte> bytes() const { return {memory_, size_bytes_}; }

 private:
  Device& device_;
  std::byte* memory_;
  std::size_t size_bytes_;
};

// Holds a stream by a launched function until opened; opens by itself when it goes. Declare it
// after the stream.
class Gate {
 public:
  Gate() = default;

  ~Gate() { open(); }

  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  Gate(Gate&&) = delete;
  Gate& operator=(Gate&&) = delete;

  void hold(Stream& stream) {
    stream.launch([open = open_] {
      const auto give_up = std::chrono::steady_clock::now() + patience;
      while (!open->load() && std::chrono::steady_clock::now() < give_up) {
        std::this_thread::sleep_for(100us);
      }
    });
  }

  void open() { open_->store(true); }

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

// Bytes that differ between seeds and between neighbouring positions.
inline void fill_pattern(std::span<std::byte> bytes, std::uint32_t seed) {
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24U);
  }
}

inline std::vector<std::byte> pattern(std::size_t size_bytes, std::uint32_t seed) {
  std::vector<std::byte> bytes(size_bytes);
  fill_pattern(bytes, seed);
  return bytes;
}

// Blocking copies, for the parts of a test that are not about streams.
inline void upload(Device& device, DeviceAddress to, std::span<const std::byte> from) {
  const auto stream = device.create_stream();
  stream->copy_to_device(to, from.data(), from.size());
  ASSERT_TRUE(wait_for(*stream, patience));
}

inline std::vector<std::byte> download(Device& device, DeviceAddress from, std::size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  const auto stream = device.create_stream();
  stream->copy_to_host(bytes.data(), from, size_bytes);
  EXPECT_TRUE(wait_for(*stream, patience));
  return bytes;
}

// The status of the Error that `call` throws, Status::ok when it throws nothing.
template <typename Call>
Status status_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.failure().status;
  }
  return Status::ok;
}

}  // namespace hippogriff::device_testing
