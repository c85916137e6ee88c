// The CUDA device on whatever CUDA driver there is: a GPU's, or the fake of testing/fake_cuda.
#include "device/cuda_device.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#if HIPPOGRIFF_HAS_CUDA
#include "device/cuda_driver.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "testing/device_conformance.hpp"

namespace hippogriff {
namespace {

using std::chrono::seconds;

struct CudaFactory {
  static std::shared_ptr<Device> make() {
    return cuda_presence().device_count == 0 ? nullptr : make_cuda_device(0);
  }

  static std::string why_absent() { return "no CUDA device: " + cuda_presence().why_not; }
};

constexpr std::size_t mib = 1U << 20;

int index_of(DeviceAddress address) {
  const auto place = locate_cuda_memory(address);
  return place ? place->device_index : -1;
}

std::vector<std::byte> pattern(std::size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  for (std::size_t index = 0; index < size_bytes; ++index) {
    bytes[index] = static_cast<std::byte>((index * 2654435761U) >> 13U);
  }
  return bytes;
}

TEST(CudaPresence, has_devices_or_says_why_not) {
  const CudaPresence& presence = cuda_presence();
  EXPECT_EQ(presence.device_count == 0, !presence.why_not.empty());
  EXPECT_EQ(&presence, &cuda_presence());
}

#if HIPPOGRIFF_HAS_CUDA

// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", hexadecimal.
bool looks_like_uuid(std::string_view text) {
  constexpr std::string_view shape = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (text.size() != shape.size()) {
    return false;
  }
  for (std::size_t index = 0; index < shape.size(); ++index) {
    const bool digit = std::string_view("0123456789abcdef").find(text[index]) != text.npos;
    if (shape[index] == 'x' ? !digit : text[index] != shape[index]) {
      return false;
    }
  }
  return true;
}

TEST(CudaPresence, missing_library_is_named_with_what_to_do) {
  const CudaDriverLoad load = load_cuda_driver("/nonexistent/libcuda.so.1");
  EXPECT_EQ(load.driver, nullptr);
  EXPECT_EQ(load.presence.device_count, 0);
  EXPECT_NE(load.presence.why_not.find("/nonexistent/libcuda.so.1"), std::string::npos);
  EXPECT_NE(load.presence.why_not.find("install the NVIDIA driver"), std::string::npos);
}

TEST(CudaPresence, library_that_is_no_driver_is_refused) {
  const CudaDriverLoad load = load_cuda_driver("libm.so.6");
  EXPECT_EQ(load.driver, nullptr);
  EXPECT_NE(load.presence.why_not.find("lacks cuInit"), std::string::npos) << load.presence.why_not;
}

TEST(CudaPresence, empty_library_name_switches_cuda_off) {
  const CudaDriverLoad load = load_cuda_driver("");
  EXPECT_EQ(load.driver, nullptr);
  EXPECT_NE(load.presence.why_not.find("switched off"), std::string::npos);
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_presence().device_count == 0) {
      GTEST_SKIP() << "no CUDA device: " << cuda_presence().why_not;
    }
    device_ = make_cuda_device(0);
    scope_.emplace(*device_);
  }

  Device& device() { return *device_; }

  // Copies to the device and back through pinned memory on one stream.
  std::vector<std::byte> round_trip(std::span<const std::byte> bytes, Stream& stream) {
    const DeviceAddress there = device().allocate(bytes.size());
    std::byte* pinned = device().allocate_pinned(bytes.size());
    std::memcpy(pinned, bytes.data(), bytes.size());
    stream.copy_to_device(there, pinned, bytes.size());
    EXPECT_TRUE(wait_for(stream, seconds(10)));
    std::memset(pinned, 0, bytes.size());
    stream.copy_to_host(pinned, there, bytes.size());
    EXPECT_TRUE(wait_for(stream, seconds(10)));
    std::vector<std::byte> result(pinned, pinned + bytes.size());
    device().release_pinned(pinned);
    device().release(there);
    return result;
  }

 private:
  std::shared_ptr<Device> device_;

 protected:
  std::optional<DeviceScope> scope_;  // goes before the device
};

TEST_F(CudaDeviceTest, info_describes_the_gpu) {
  const DeviceInfo& info = device().info();
  EXPECT_EQ(info.name, "cuda:0");
  EXPECT_FALSE(info.model.empty());
  EXPECT_TRUE(looks_like_uuid(info.uuid)) << info.uuid;
  EXPECT_GT(info.memory_bytes, 64 * mib);
  EXPECT_FALSE(info.can.host_addressable);
}

TEST_F(CudaDeviceTest, index_out_of_range_is_the_callers_mistake) {
  for (const int index : {-1, cuda_presence().device_count}) {
    try {
      static_cast<void>(make_cuda_device(index));
      FAIL() << "made cuda:" << index;
    } catch (const Error& error) {
      EXPECT_EQ(error.failure().status, Status::invalid_argument);
    }
  }
}

TEST_F(CudaDeviceTest, copies_round_trip_on_own_and_default_streams) {
  const auto bytes = pattern(3 * mib + 17);
  const auto own = device().create_stream();
  EXPECT_EQ(round_trip(bytes, *own), bytes);
  const auto legacy = device().borrow_stream(nullptr);
  EXPECT_EQ(legacy->native_handle(), CU_STREAM_LEGACY);
  EXPECT_EQ(round_trip(bytes, *legacy), bytes);
  const auto per_thread = device().borrow_stream(CU_STREAM_PER_THREAD);
  EXPECT_EQ(round_trip(bytes, *per_thread), bytes);
}

TEST_F(CudaDeviceTest, own_allocation_is_aligned_and_found_from_inside) {
  const std::size_t size_bytes = mib + 1;
  const DeviceAddress address = device().allocate(size_bytes);
  EXPECT_EQ(address.value % 256, 0U);
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{size_bytes - 1}}) {
    const auto found = device().find(address + offset);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->base, address);
    EXPECT_EQ(found->size_bytes, size_bytes);
  }
  EXPECT_EQ(index_of(address), 0);
  device().release(address);
}

TEST_F(CudaDeviceTest, memory_of_other_code_is_found) {
  const CudaDriver& driver = *cuda_driver();
  CUdeviceptr foreign = 0;
  ASSERT_EQ(driver.mem_alloc(&foreign, 2 * mib), CUDA_SUCCESS);
  const auto found = device().find({foreign + mib});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->base.value, foreign);
  EXPECT_EQ(found->size_bytes, 2 * mib);
  EXPECT_EQ(index_of({foreign + mib}), 0);
  ASSERT_EQ(driver.mem_free(foreign), CUDA_SUCCESS);
}

TEST_F(CudaDeviceTest, host_memory_is_not_device_memory) {
  std::vector<std::byte> ordinary(mib);
  std::byte* pinned = device().allocate_pinned(mib);
  for (const std::byte* memory : {ordinary.data(), pinned}) {
    const DeviceAddress address{reinterpret_cast<std::uint64_t>(memory)};
    EXPECT_FALSE(device().find(address).has_value());
    EXPECT_EQ(index_of(address), -1);
  }
  EXPECT_FALSE(device().find({0}).has_value());
  device().release_pinned(pinned);
}

TEST_F(CudaDeviceTest, device_location_needs_no_current_context) {
  const DeviceAddress address = device().allocate(mib);
  scope_.reset();
  EXPECT_EQ(index_of(address), 0);
  scope_.emplace(device());
  device().release(address);
}

TEST_F(CudaDeviceTest, allocation_beyond_the_device_says_asked_free_and_total) {
  const std::uint64_t total_bytes = device().info().memory_bytes;
  for (const std::uint64_t size_bytes : {total_bytes, total_bytes + 1, SIZE_MAX}) {
    try {
      // All of the device may be had on a fake one, where nothing else is allocated.
      const DeviceAddress all = device().allocate(size_bytes);
      EXPECT_EQ(size_bytes, total_bytes);
      device().release(all);
    } catch (const Error& error) {
      EXPECT_EQ(error.failure().status, Status::out_of_device_memory);
      EXPECT_EQ(error.failure().object, "cuda:0");
      EXPECT_NE(error.failure().detail.find(std::to_string(size_bytes)), std::string::npos);
      EXPECT_NE(error.failure().detail.find("free"), std::string::npos);
    }
  }
  EXPECT_THROW(static_cast<void>(device().allocate(0)), Error);
}

TEST_F(CudaDeviceTest, released_memory_counts_as_free_again) {
  const std::uint64_t before_bytes = device().memory().free_bytes;
  const DeviceAddress address = device().allocate(48 * mib);
  EXPECT_LE(device().memory().free_bytes, before_bytes - 48 * mib);
  device().release(address);
  EXPECT_GE(device().memory().free_bytes + 4 * mib, before_bytes);
}

TEST_F(CudaDeviceTest, read_only_mapping_is_copied_without_the_cpu) {
  if (!device().info().can.registers_read_only) {
    GTEST_SKIP() << "this device registers no read-only pages";
  }
  const auto bytes = pattern(2 * mib);
  const int fd = ::memfd_create("cuda_device_test", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  void* mapped = ::mmap(nullptr, bytes.size(), PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* memory = static_cast<std::byte*>(mapped);
  device().register_host(memory, bytes.size(), HostAccess::read_only);
  const DeviceAddress there = device().allocate(bytes.size());
  std::vector<std::byte> back(bytes.size());
  const auto stream = device().create_stream();
  stream->copy_to_device(there, memory, bytes.size());
  ASSERT_TRUE(wait_for(*stream, seconds(10)));
  device().unregister_host(memory);
  stream->copy_to_host(back.data(), there, back.size());
  ASSERT_TRUE(wait_for(*stream, seconds(10)));
  EXPECT_EQ(back, bytes);
  device().release(there);
  ::munmap(mapped, bytes.size());
  ::close(fd);
}

TEST_F(CudaDeviceTest, registration_wants_whole_pages) {
  std::byte* memory = device().allocate_pinned(16384);
  for (const auto& [offset, size_bytes] :
       {std::pair<std::size_t, std::size_t>{1, 4096}, {0, 4095}, {0, 0}}) {
    try {
      device().register_host(memory + offset, size_bytes, HostAccess::read_write);
      FAIL() << "registered " << size_bytes << " bytes at offset " << offset;
    } catch (const Error& error) {
      EXPECT_EQ(error.failure().status, Status::invalid_argument);
    }
  }
  device().release_pinned(memory);
}

TEST_F(CudaDeviceTest, pinned_memory_is_zero_and_as_large_as_asked) {
  const std::size_t size_bytes = 70 * mib + 5;
  std::byte* memory = device().allocate_pinned(size_bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, 0U);
  for (std::size_t offset = 0; offset < size_bytes; offset += mib) {
    ASSERT_EQ(memory[offset], std::byte{0});
  }
  memory[size_bytes - 1] = std::byte{1};
  device().release_pinned(memory);
}

TEST_F(CudaDeviceTest, flag_holds_the_stream_until_its_value_is_reached) {
  if (!device().info().can.stream_wait_flag) {
    GTEST_SKIP() << "streams of this device wait for no flags";
  }
  std::byte* memory = device().allocate_pinned(4096);
  auto* word = reinterpret_cast<std::uint32_t*>(memory);
  const std::atomic_ref<std::uint32_t> flag(*word);
  const auto stream = device().create_stream();
  const auto event = device().create_event();
  // The value compares modulo 2^32: this one is reached by wrapping around.
  flag.store(UINT32_MAX - 1, std::memory_order_release);
  stream->wait_flag({word, 3});
  stream->record(*event);
  EXPECT_FALSE(wait_for(*event, std::chrono::milliseconds(20)));
  flag.store(UINT32_MAX, std::memory_order_release);
  EXPECT_FALSE(wait_for(*event, std::chrono::milliseconds(20)));
  flag.store(4, std::memory_order_release);
  EXPECT_TRUE(wait_for(*event, seconds(10)));
  device().release_pinned(memory);
}

TEST_F(CudaDeviceTest, flag_in_ordinary_memory_is_refused) {
  if (!device().info().can.stream_wait_flag) {
    GTEST_SKIP() << "streams of this device wait for no flags";
  }
  std::uint32_t word = 0;
  const auto stream = device().create_stream();
  try {
    stream->wait_flag({&word, 1});
    FAIL() << "waited for ordinary memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::device_error);
    EXPECT_NE(error.failure().device_status, 0);
  }
}

TEST_F(CudaDeviceTest, launched_function_runs_between_the_work_around_it) {
  const auto stream = device().create_stream();
  const auto event = device().create_event();
  std::atomic<bool> go{false};
  std::atomic<int> order{0};
  stream->launch([&] {
    while (!go) {
      std::this_thread::yield();
    }
    order = 1;
  });
  stream->record(*event);
  EXPECT_FALSE(event->completed());
  EXPECT_FALSE(stream->idle());
  EXPECT_EQ(order, 0);
  go = true;
  EXPECT_TRUE(wait_for(*event, seconds(10)));
  EXPECT_EQ(order, 1);
}

TEST_F(CudaDeviceTest, one_stream_waits_for_an_event_of_another) {
  const auto first = device().create_stream();
  const auto second = device().create_stream();
  const auto event = device().create_event();
  std::atomic<bool> go{false};
  first->launch([&go] {
    while (!go) {
      std::this_thread::yield();
    }
  });
  first->record(*event);
  second->wait(*event);
  EXPECT_FALSE(wait_for(*second, std::chrono::milliseconds(20)));
  go = true;
  EXPECT_TRUE(wait_for(*second, seconds(10)));
}

TEST_F(CudaDeviceTest, event_never_recorded_counts_as_completed) {
  EXPECT_TRUE(device().create_event()->completed());
}

TEST_F(CudaDeviceTest, scope_brings_back_what_was_current_before) {
  std::thread thread([this] {
    ASSERT_EQ(current_cuda_device(), -1);
    {
      const DeviceScope scope(device());
      EXPECT_EQ(current_cuda_device(), 0);
    }
    EXPECT_EQ(current_cuda_device(), -1);
  });
  thread.join();
}

TEST_F(CudaDeviceTest, threads_make_the_device_current_for_themselves) {
  const DeviceAddress there = device().allocate(mib);
  std::byte* pinned = device().allocate_pinned(mib);
  std::thread thread([&] {
    EXPECT_EQ(current_cuda_device(), -1);
    device().make_current();
    device().make_current();
    EXPECT_EQ(current_cuda_device(), 0);
    const auto stream = device().create_stream();
    stream->copy_to_device(there, pinned, mib);
    EXPECT_TRUE(wait_for(*stream, seconds(10)));
  });
  thread.join();
  device().release_pinned(pinned);
  device().release(there);
}

TEST_F(CudaDeviceTest, forked_child_says_that_cuda_does_not_work_in_it) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const CudaPresence& presence = cuda_presence();
    const bool told = presence.device_count == 0 &&
                      presence.why_not.find("forked") != std::string::npos &&
                      cuda_driver() == nullptr && current_cuda_device() == -1;
    ::_exit(told ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

#endif  // HIPPOGRIFF_HAS_CUDA

}  // namespace
}  // namespace hippogriff

HIPPO_TEST_DEVICE_CONFORMANCE(Cuda, hippogriff::CudaFactory);
