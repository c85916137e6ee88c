// The C interface on the device host, as a program sees it: an environment of its own, files, and
// errors as values.
#pragma once

#include "testing/runtime_fixture.hpp"
#include "testing/temporary_folder.hpp"

#include <hippogriff/hippogriff.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff {

inline constexpr std::int64_t abi_patience_ms = 60'000;

inline std::string last_message() {
  hippogriff_error error{};
  hippogriff_last_error(&error);
  return error.message == nullptr ? "" : error.message;
}

inline hippogriff_status last_status() {
  hippogriff_error error{};
  hippogriff_last_error(&error);
  return error.status;
}

// A handle that is given back.
struct HandleRelease {
  void operator()(hippogriff_transfer* transfer) const { hippogriff_release(transfer); }
};

using Handle = std::unique_ptr<hippogriff_transfer, HandleRelease>;

// What a call that gives JSON gave, parsed.
inline nlohmann::json parsed(char* text) {
  auto json = nlohmann::json::parse(text, nullptr, false);
  hippogriff_free_string(text);
  return json;
}

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    EXPECT_GE(fd_, 0) << path;
  }

  ~OpenFile() { close(fd_); }

  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] int get() const { return fd_; }

 private:
  const int fd_;
};

class AbiTest : public ::testing::Test {
 protected:
  AbiTest() {
    // NOLINTBEGIN(concurrency-mt-unsafe): before any thread starts
    setenv("HIPPOGRIFF_DEVICE", "host", 1);
    setenv("HIPPOGRIFF_HOST_MEMORY", "256MiB", 1);
    setenv("HIPPOGRIFF_CALIBRATION", folder_.file("calibration.json").c_str(), 1);
    // NOLINTEND(concurrency-mt-unsafe)
    EXPECT_EQ(hippogriff_init(), HIPPOGRIFF_OK) << last_message();
  }

  void TearDown() override {
    EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK) << last_message();
    EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_NOT_INITIALIZED) << "an init is left over";
  }

  // A file of random bytes, which are returned.
  std::vector<std::byte> make_file(const std::string& path, std::size_t size, std::uint64_t seed) {
    auto bytes = random_bytes(size, seed);
    write_whole(path, bytes);
    return bytes;
  }

  static void* device_memory(std::size_t size) {
    void* memory = nullptr;
    EXPECT_EQ(hippogriff_malloc(nullptr, size, &memory), HIPPOGRIFF_OK) << last_message();
    return memory;
  }

  static std::vector<std::byte> bytes_of(const void* memory, std::size_t size) {
    std::vector<std::byte> bytes(size);
    EXPECT_EQ(hippogriff_copy_to_host(bytes.data(), memory, size), HIPPOGRIFF_OK) << last_message();
    return bytes;
  }

  const TemporaryFolder folder_;
};

// Holds a stream until it is let go.
class HeldStream {
 public:
  HeldStream() {
    EXPECT_EQ(hippogriff_stream_create(nullptr, &stream_), HIPPOGRIFF_OK) << last_message();
    EXPECT_EQ(hippogriff_stream_launch(nullptr, stream_, wait_for_go, &go_), HIPPOGRIFF_OK);
  }

  ~HeldStream() {
    let_go();
    EXPECT_EQ(hippogriff_stream_synchronize(nullptr, stream_, abi_patience_ms), HIPPOGRIFF_OK)
        << last_message();
    EXPECT_EQ(hippogriff_stream_destroy(nullptr, stream_), HIPPOGRIFF_OK) << last_message();
  }

  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  void let_go() { go_ = true; }

  [[nodiscard]] void* get() const { return stream_; }

 private:
  static void wait_for_go(void* go) {
    while (!static_cast<std::atomic<bool>*>(go)->load()) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  void* stream_ = nullptr;
  std::atomic<bool> go_{false};
};

}  // namespace hippogriff
