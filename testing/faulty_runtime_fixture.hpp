// A runtime whose storage and device go wrong on order, and the checks that hold after every fault:
// what is not listed as missing is there, the next transfer works, nothing leaks, nothing hangs.
#pragma once

#include "device/cuda_device.hpp"
#include "testing/faulty_device.hpp"
#include "testing/faulty_storage.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/cufile_library.hpp"
#include "transfer/report.hpp"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff {

// No fault may hold a transfer longer.
inline constexpr std::chrono::milliseconds no_hang{60'000};

inline std::size_t entries_of(const char* folder) {
  const auto entries = std::filesystem::directory_iterator(folder);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

// The CUDA driver, once looked for, keeps descriptors and threads for as long as the process lives:
// the runtime's first look must come before counting.
inline void look_for_drivers() {
  static_cast<void>(cuda_presence());
  static_cast<void>(gds_presence());
}

inline std::size_t open_descriptors() {
  look_for_drivers();
  return entries_of("/proc/self/fd");
}

// A sanitizer starts a thread of its own with the first of the program's: start one before
// counting.
inline std::size_t running_threads() {
  static const bool started = [] {
    std::thread([] {}).join();
    return true;
  }();
  static_cast<void>(started);
  return entries_of("/proc/self/task");
}

// Threads that were joined may be seen for a moment more.
inline bool threads_come_down_to(std::size_t count) {
  for (int wait = 0; wait < 2000 && running_threads() > count; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return running_threads() <= count;
}

// A device, its faults, a storage, its faults, and a runtime over both. close() checks for leaks.
class FaultyRuntime {
 public:
  explicit FaultyRuntime(Settings settings = test_settings(),
                         std::shared_ptr<Device> inner = linked_device())
      : descriptors_before_(open_descriptors()),
        threads_before_(running_threads()),
        device(make_faulty_device(std::move(inner), device_faults)),
        runtime(std::make_unique<Runtime>(std::move(settings),
                                          make_faulty_storage(make_system_storage(), plan),
                                          std::vector<std::shared_ptr<Device>>{device})) {}

  ~FaultyRuntime() { close(); }

  FaultyRuntime(const FaultyRuntime&) = delete;
  FaultyRuntime& operator=(const FaultyRuntime&) = delete;

  // Ends the runtime. Handles must be gone. `pinned_kept`: words that streams may still look at.
  void close(std::int64_t pinned_kept = 0) {
    if (runtime == nullptr) {
      return;
    }
    stop_faults();
    EXPECT_EQ(state().engine->parked_bytes(), 0U);
    EXPECT_TRUE(runtime->shutdown(no_hang));
    runtime.reset();
    const OutstandingOnDevice left = device_faults->outstanding();
    EXPECT_EQ(left.allocations, 0);
    EXPECT_EQ(left.pinned, pinned_kept);
    EXPECT_EQ(left.registrations, 0);
    EXPECT_EQ(left.streams, 0);
    EXPECT_EQ(left.events, 0);
    device.reset();
    EXPECT_TRUE(threads_come_down_to(threads_before_))
        << running_threads() << " threads, before " << threads_before_;
    EXPECT_EQ(open_descriptors(), descriptors_before_);
  }

  void stop_faults() {
    plan->clear();
    device_faults->clear();
  }

  DeviceState& state() const { return runtime->device(""); }

 private:
  const std::size_t descriptors_before_;
  const std::size_t threads_before_;

 public:
  const std::shared_ptr<FaultPlan> plan = std::make_shared<FaultPlan>();
  const std::shared_ptr<DeviceFaults> device_faults = std::make_shared<DeviceFaults>();
  std::shared_ptr<Device> device;
  std::unique_ptr<Runtime> runtime;
};

// Compares the extent's bytes, where they should be, with what they should be. `at_destination`
// begins with the extent's first byte. Bytes that are missing may be anything.
inline void expect_all_but_missing(const Transfer& transfer,
                                   const std::byte* at_destination,
                                   const std::byte* expected) {
  const Range extent = transfer.request().extent;
  RangeSet missing;
  std::uint64_t missing_bytes = 0;
  for (const Range& range : transfer.missing()) {
    EXPECT_GE(range.offset, extent.offset);
    EXPECT_LE(range.end(), extent.end());
    missing.insert(range);
    missing_bytes += range.size;
  }
  EXPECT_EQ(transfer.bytes_done(), extent.size - missing_bytes);
  for (const Range& there : missing.missing_from(extent)) {
    const std::uint64_t at = there.offset - extent.offset;
    EXPECT_EQ(std::memcmp(at_destination + at, expected + at, there.size), 0)
        << there.size << " bytes at " << there.offset << " are not there, and not missing";
  }
  if (!transfer.failed()) {
    EXPECT_EQ(missing_bytes, 0U);
    EXPECT_EQ(transfer.failure_message(), "");
  } else {
    EXPECT_NE(transfer.failure_message(), "");
  }
}

}  // namespace hippogriff
