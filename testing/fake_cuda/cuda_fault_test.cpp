// What the CUDA device does when the driver fails, runs full or behaves oddly: over the fake
// driver.
#include "device/cuda_driver.hpp"
#include "testing/fake_cuda/cuda_fault_fixture.hpp"

#include <cuda.h>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

std::string driver_file() {
  return std::getenv("HIPPOGRIFF_CUDA_DRIVER");  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(CudaFaultTest, no_gpu_is_explained) {
  fake().fail("cuInit", 1, CUDA_ERROR_NO_DEVICE);
  const CudaDriverLoad load = load_cuda_driver(driver_file());
  EXPECT_EQ(load.driver, nullptr);
  EXPECT_EQ(load.presence.device_count, 0);
  EXPECT_EQ(load.presence.driver_version, 13000);
  EXPECT_NE(load.presence.why_not.find("100"), std::string::npos);
  EXPECT_NE(load.presence.why_not.find("CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST_F(CudaFaultTest, every_failing_start_has_its_advice) {
  for (const int result : {3, 34, 802, 803, 999}) {
    fake().fail("cuInit", 1, result);
    const CudaDriverLoad load = load_cuda_driver(driver_file());
    EXPECT_EQ(load.driver, nullptr);
    EXPECT_NE(load.presence.why_not.find(", " + std::to_string(result) + "): "), std::string::npos)
        << load.presence.why_not;
  }
}

TEST_F(CudaFaultTest, driver_older_than_12_is_refused) {
  fake().set("driver_version", 11080);
  const CudaDriverLoad load = load_cuda_driver(driver_file());
  EXPECT_EQ(load.driver, nullptr);
  EXPECT_NE(load.presence.why_not.find("11.8"), std::string::npos) << load.presence.why_not;
  fake().set("driver_version", 12000);
  EXPECT_NE(load_cuda_driver(driver_file()).driver, nullptr);
}

TEST_F(CudaFaultTest, device_that_does_not_start_leaks_nothing) {
  drop_device();
  for (const char* function : {"cuDeviceGet",
                               "cuDevicePrimaryCtxRetain",
                               "cuDeviceGetName",
                               "cuDeviceGetUuid",
                               "cuDeviceTotalMem",
                               "cuMemGetAllocationGranularity"}) {
    fake().fail(function, 1, CUDA_ERROR_UNKNOWN);
    const Failure failure = failure_of([] { static_cast<void>(make_cuda_device(0)); });
    EXPECT_EQ(failure.status, Status::device_error) << function;
    EXPECT_EQ(failure.object, "cuda:0");
    EXPECT_EQ(failure.device_status, CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(failure.operation.empty());
    EXPECT_EQ(fake().count("contexts"), 0) << function;
  }
}

TEST_F(CudaFaultTest, every_stream_call_reports_its_failure) {
  const auto stream = device().create_stream();
  const auto event = device().create_event();
  const DeviceAddress there = device().allocate(4096);
  std::byte* here = device().allocate_pinned(4096);
  auto* word = reinterpret_cast<std::uint32_t*>(here);

  struct Case {
    const char* function;
    std::function<void()> call;
  };

  const std::vector<Case> cases{
      {"cuMemcpyHtoDAsync", [&] { stream->copy_to_device(there, here, 4096); }},
      {"cuMemcpyBatchAsync",
       [&] {
         const std::array parts{CopyPart{there, here, 2048}, CopyPart{there + 2048, here, 2048}};
         stream->copy_all_to_device(parts);
       }},
      {"cuMemcpyDtoHAsync", [&] { stream->copy_to_host(here, there, 4096); }},
      {"cuEventRecord", [&] { stream->record(*event); }},
      {"cuStreamWaitEvent", [&] { stream->wait(*event); }},
      {"cuLaunchHostFunc", [&] { stream->launch([] { FAIL() << "ran"; }); }},
      {"cuMemHostGetDevicePointer", [&] { stream->wait_flag({word, 0}); }},
      {"cuStreamWaitValue32", [&] { stream->wait_flag({word, 0}); }},
      {"cuStreamQuery", [&] { static_cast<void>(stream->idle()); }},
      {"cuEventQuery", [&] { static_cast<void>(event->completed()); }},
      {"cuMemGetInfo", [&] { static_cast<void>(device().memory()); }},
      {"cuStreamCreate", [&] { static_cast<void>(device().create_stream()); }},
      {"cuEventCreate", [&] { static_cast<void>(device().create_event()); }},
      {"cuCtxSetCurrent", [&] { device().make_current(); }},
      {"cuCtxGetCurrent", [&] { static_cast<void>(device().memory()); }},
  };
  for (const Case& one : cases) {
    fake().fail(one.function, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    const Failure failure = failure_of(one.call);
    EXPECT_EQ(failure.status, Status::device_error) << one.function;
    EXPECT_EQ(failure.device_status, CUDA_ERROR_ILLEGAL_ADDRESS) << one.function;
    EXPECT_EQ(failure.object, "cuda:0") << one.function;
    EXPECT_FALSE(failure.operation.empty()) << one.function;
  }
  EXPECT_TRUE(stream->idle());
  device().release_pinned(here);
  device().release(there);
}

TEST_F(CudaFaultTest, context_that_cannot_be_made_current_says_so) {
  const DeviceEntry entry = device().enter();
  EXPECT_FALSE(entry.pushed) << "it is current";
  device().leave(entry);
  scope_.reset();
  fake().fail("cuCtxPushCurrent", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
  const Failure failure = failure_of([&] { const DeviceScope scope(device()); });
  EXPECT_EQ(failure.operation, "make the device current");
  EXPECT_EQ(failure.device_status, CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(CudaFaultTest, managed_memory_belongs_to_its_device_and_memory_of_others_does_not) {
  const auto mine = reinterpret_cast<std::uint64_t>(fake().managed(mib, 0));
  const auto other = reinterpret_cast<std::uint64_t>(fake().managed(mib, 1));
  ASSERT_TRUE(device().find({mine + 1}).has_value());
  EXPECT_EQ(device().find({mine + 1})->base.value, mine);
  EXPECT_FALSE(device().find({other}).has_value());
  ASSERT_TRUE(locate_cuda_memory({other}).has_value());
  EXPECT_EQ(locate_cuda_memory({other})->device_index, 1);
  fake().fail("cuPointerGetAttributes", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(device().find({mine}).has_value());
}

TEST_F(CudaFaultTest, pinning_failures_free_the_pages_and_say_which_memory_is_short) {
  fake().fail("cuMemHostRegister", 1, CUDA_ERROR_OUT_OF_MEMORY);
  Failure failure = failure_of([&] { static_cast<void>(device().allocate_pinned(mib)); });
  EXPECT_EQ(failure.status, Status::out_of_host_memory);
  EXPECT_EQ(failure.device_status, CUDA_ERROR_OUT_OF_MEMORY);
  fake().fail("cuMemHostRegister", 1, CUDA_ERROR_NOT_PERMITTED);
  failure = failure_of([&] { static_cast<void>(device().allocate_pinned(mib)); });
  EXPECT_EQ(failure.status, Status::device_error);
  EXPECT_EQ(failure_of([&] { static_cast<void>(device().allocate_pinned(0)); }).status,
            Status::invalid_argument);
  EXPECT_EQ(failure_of([&] { static_cast<void>(device().allocate_pinned(SIZE_MAX / 4)); }).status,
            Status::out_of_host_memory);
}

TEST_F(CudaFaultTest, pages_registered_twice_are_refused) {
  std::byte* memory = device().allocate_pinned(mib);
  const Failure failure =
      failure_of([&] { device().register_host(memory, 4096, HostAccess::read_only); });
  EXPECT_EQ(failure.status, Status::device_error);
  EXPECT_EQ(failure.device_status, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  device().release_pinned(memory);
}

TEST_F(CudaFaultTest, registering_goes_through_a_context_of_its_own_once_there_is_one) {
  alignas(4096) static std::array<std::byte, 4096> pages{};
  device().register_host(pages.data(), pages.size(), HostAccess::read_write);
  EXPECT_EQ(fake().count("own_contexts"), 0);
  EXPECT_TRUE(device().registers_aside(std::chrono::seconds(10)));
  EXPECT_TRUE(device().registers_aside(std::chrono::seconds(0)));
  EXPECT_EQ(fake().count("own_contexts"), 1);
  // What was registered before goes the way it came.
  device().unregister_host(pages.data());
  device().register_host(pages.data(), pages.size(), HostAccess::read_write);
  device().unregister_host(pages.data());
  EXPECT_EQ(fake().count("registrations"), 0);
  drop_device();
  EXPECT_EQ(fake().count("own_contexts"), 0);
}

TEST_F(CudaFaultTest, registering_works_where_there_is_no_room_for_a_context_of_its_own) {
  fake().fail("cuCtxCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(device().registers_aside(std::chrono::seconds(10)));
  EXPECT_FALSE(device().registers_aside(std::chrono::seconds(0)));
  alignas(4096) static std::array<std::byte, 4096> pages{};
  device().register_host(pages.data(), pages.size(), HostAccess::read_write);
  device().unregister_host(pages.data());
  EXPECT_EQ(fake().count("registrations"), 0);
}

TEST_F(CudaFaultTest, device_that_goes_while_its_second_context_comes_leaks_nothing) {
  static_cast<void>(device().registers_aside(std::chrono::seconds(0)));
  drop_device();
  EXPECT_EQ(fake().count("own_contexts"), 0);
}

TEST_F(CudaFaultTest, capabilities_follow_the_drivers_attributes) {
  EXPECT_TRUE(device().info().can.registers_read_only);
  EXPECT_TRUE(device().info().can.registers_read_write);
  EXPECT_TRUE(device().info().can.stream_wait_flag);
  fake().set("attribute 113", 0);  // read-only registration
  fake().set("attribute 122", 0);  // stream memory operations
  remake_device();
  EXPECT_FALSE(device().info().can.registers_read_only);
  EXPECT_TRUE(device().info().can.registers_read_write);
  EXPECT_FALSE(device().info().can.stream_wait_flag);
  std::byte* memory = device().allocate_pinned(4096);
  EXPECT_EQ(failure_of([&] { device().register_host(memory, 4096, HostAccess::read_only); }).status,
            Status::unsupported);
  device().release_pinned(memory);
}

TEST_F(CudaFaultTest, stream_that_captures_a_graph_is_refused_and_left_alone) {
  const auto own = device().create_stream();
  const auto stream = device().borrow_stream(own->native_handle());
  const auto event = device().create_event();
  const DeviceAddress there = device().allocate(4096);
  std::byte* here = device().allocate_pinned(4096);
  fake().set_capturing(own->native_handle(), true);
  const std::vector<std::function<void()>> calls{
      [&] { stream->copy_to_device(there, here, 4096); },
      [&] { stream->copy_to_host(here, there, 4096); },
      [&] { stream->record(*event); },
      [&] { stream->wait(*event); },
      [&] { stream->launch([] { FAIL() << "ran"; }); },
      [&] { stream->wait_flag({reinterpret_cast<std::uint32_t*>(here), 0}); },
      [&] { static_cast<void>(stream->idle()); },
  };
  for (const auto& call : calls) {
    const Failure failure = failure_of(call);
    EXPECT_EQ(failure.status, Status::unsupported);
    EXPECT_NE(failure.detail.find("captures a CUDA graph"), std::string::npos);
  }
  EXPECT_TRUE(own->idle()) << "something was queued";
  fake().set_capturing(own->native_handle(), false);
  EXPECT_NO_THROW(stream->copy_to_device(there, here, 4096));
  EXPECT_TRUE(wait_for(*stream, std::chrono::seconds(10)));
  // The legacy stream says so when another stream's capture forbids its use.
  fake().fail("cuStreamIsCapturing", 1, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(failure_of(calls.front()).status, Status::unsupported);
  device().release_pinned(here);
  device().release(there);
}

TEST_F(CudaFaultTest, asking_for_events_leaves_the_captures_of_other_threads_alone) {
  const auto capturing = device().create_stream();
  const auto event = device().create_event();
  fake().set_capturing(capturing->native_handle(), true);
  EXPECT_TRUE(event->completed()) << "in a scope";
  std::thread([&] {
    device().make_current();
    EXPECT_TRUE(event->completed()) << "on a thread of the runtime";
  }).join();
  EXPECT_EQ(fake().count("spoiled_captures"), 0);
  std::thread([&] {
    {
      const DeviceScope scope(device());
    }
    EXPECT_THROW(static_cast<void>(event->completed()), Error) << "a caller's mode comes back";
  }).join();
  EXPECT_EQ(fake().count("spoiled_captures"), 1);
  fake().set_capturing(capturing->native_handle(), false);
}

}  // namespace
}  // namespace hippogriff
