// When a CUDA device's memory is used again, kept and given back: over the fake driver, where work
// that finds its memory unmapped ends the process.
#include "device/cuda_memory.hpp"

#include "device/cuda_driver.hpp"
#include "testing/device_fixture.hpp"
#include "testing/fake_cuda/cuda_fault_fixture.hpp"
#include "testing/numa_policy.hpp"
#include "testing/temporary_folder.hpp"

#include <cuda.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff {
namespace {

using device_testing::Gate;
using device_testing::patience;
using std::chrono::milliseconds;

constexpr std::size_t kept_bytes_max = cuda_kept_bytes_max;
constexpr std::size_t much = kept_bytes_max + 2 * mib;  // more than is kept

class CudaMemoryTest : public CudaFaultTest {
 protected:
  [[nodiscard]] std::uint64_t taken_bytes() {
    return device().info().memory_bytes - free_on_device();
  }

  // As the driver sees it.
  [[nodiscard]] static std::uint64_t free_on_device() {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    EXPECT_EQ(cuda_driver()->mem_get_info(&free_bytes, &total_bytes), CUDA_SUCCESS);
    return free_bytes;
  }

  // Has what was released before awaited, and collected where the device is idle.
  void release_much() { device().release(device().allocate(much)); }

  void expect_nothing_left() {
    for (const char* what : {"allocations", "reservations", "physical"}) {
      EXPECT_EQ(fake().count(what), 0) << what;
    }
  }
};

TEST_F(CudaMemoryTest, full_device_fails_at_once_and_says_how_full) {
  const std::uint64_t total_bytes = device().info().memory_bytes;
  const DeviceAddress half = device().allocate(total_bytes / 2 + 2 * mib);
  const Failure failure =
      failure_of([&] { static_cast<void>(device().allocate(total_bytes / 2)); });
  EXPECT_EQ(failure.status, Status::out_of_device_memory);
  EXPECT_EQ(failure.device_status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(failure.detail,
            "asked for " + std::to_string(total_bytes / 2) + " bytes, " +
                std::to_string(total_bytes / 2 - 2 * mib) + " of " + std::to_string(total_bytes) +
                " are free");
  device().release(half);
}

TEST_F(CudaMemoryTest, every_failing_call_of_an_allocation_leaks_nothing) {
  for (const char* function :
       {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    for (const std::size_t size_bytes : {std::size_t{300}, 3 * mib}) {
      fake().fail(function, 1, CUDA_ERROR_UNKNOWN);
      const Failure failure = failure_of([&] { static_cast<void>(device().allocate(size_bytes)); });
      EXPECT_EQ(failure.status, Status::device_error) << function;
      EXPECT_EQ(failure.operation, "allocate device memory") << function;
      EXPECT_EQ(failure.object, "cuda:0") << function;
      EXPECT_EQ(failure.device_status, CUDA_ERROR_UNKNOWN) << function;
      expect_nothing_left();
      EXPECT_EQ(taken_bytes(), 0U) << function;
    }
  }
  device().release(device().allocate(300));
}

TEST_F(CudaMemoryTest, memory_that_cannot_be_unmapped_keeps_its_addresses) {
  const DeviceAddress first = device().allocate(much);
  fake().fail("cuMemUnmap", 1, CUDA_ERROR_LAUNCH_FAILED);
  device().release(first);
  EXPECT_EQ(fake().count("reservations"), 1);
  ASSERT_EQ(cuda_driver()->mem_unmap(first.value, much), CUDA_SUCCESS);
  ASSERT_EQ(cuda_driver()->mem_address_free(first.value, much), CUDA_SUCCESS);
}

TEST_F(CudaMemoryTest, small_allocations_share_blocks_and_large_ones_have_their_own) {
  std::set<std::uint64_t> addresses;
  std::vector<DeviceAddress> small;
  for (int count = 0; count < 512; ++count) {
    small.push_back(device().allocate(4096));
    addresses.insert(small.back().value);
  }
  EXPECT_EQ(addresses.size(), 512U);
  EXPECT_EQ(fake().count("physical"), 1) << "512 pieces of 4 KiB fill a slab";
  small.push_back(device().allocate(4096));
  EXPECT_EQ(fake().count("physical"), 2);
  const DeviceAddress large = device().allocate(mib + 1);
  EXPECT_EQ(fake().count("physical"), 3);
  EXPECT_EQ(taken_bytes(), 6 * mib);
  device().release(large);
  // A piece in the middle of a full slab is the next one, once no work uses it.
  device().release(small.at(100));
  release_much();
  const DeviceAddress again = device().allocate(4096);
  EXPECT_EQ(again, small.at(100));
  for (const DeviceAddress one : small) {
    device().release(one);
  }
  release_much();
  EXPECT_EQ(device().memory().free_bytes, device().info().memory_bytes);
}

TEST_F(CudaMemoryTest, pieces_of_every_size_are_aligned_and_apart) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> extents;
  for (std::size_t size_bytes = 128; size_bytes <= 2 * mib; size_bytes *= 2) {
    for (const std::size_t odd : {size_bytes - 1, size_bytes, size_bytes + 1}) {
      const DeviceAddress address = device().allocate(odd);
      EXPECT_EQ(address.value % 256, 0U) << odd;
      extents.emplace_back(address.value, address.value + odd);
    }
  }
  std::sort(extents.begin(), extents.end());
  for (std::size_t index = 1; index < extents.size(); ++index) {
    EXPECT_LE(extents[index - 1].second, extents[index].first);
  }
  for (const auto& [begin, end] : extents) {
    device().release({begin});
  }
}

TEST_F(CudaMemoryTest, only_what_is_allocated_is_found) {
  for (const std::size_t size_bytes : {std::size_t{300}, 3 * mib}) {
    const DeviceAddress address = device().allocate(size_bytes);
    const auto found = device().find(address + (size_bytes - 1));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->base, address);
    EXPECT_EQ(found->size_bytes, size_bytes);
    EXPECT_FALSE(device().find(address + size_bytes).has_value()) << "rounded up";
    device().release(address);
    EXPECT_FALSE(device().find(address).has_value()) << "released";
    release_much();
    EXPECT_FALSE(device().find(address).has_value()) << "kept";
  }
}

TEST_F(CudaMemoryTest, no_more_is_kept_than_the_limit_and_the_oldest_goes_first) {
  const DeviceAddress first = device().allocate(100 * mib);
  const DeviceAddress second = device().allocate(100 * mib);
  const DeviceAddress third = device().allocate(100 * mib);
  device().release(first);
  release_much();
  EXPECT_EQ(taken_bytes(), 300 * mib) << "the first is kept";
  device().release(second);
  release_much();
  device().release(third);
  release_much();
  EXPECT_EQ(taken_bytes(), 200 * mib);
  EXPECT_EQ(device().memory().free_bytes, device().info().memory_bytes);
  EXPECT_FALSE(locate_cuda_memory(first).has_value());
  device().release(device().allocate(kept_bytes_max));
  release_much();
  EXPECT_EQ(taken_bytes(), kept_bytes_max);
}

TEST_F(CudaMemoryTest, kept_block_serves_what_is_at_most_an_eighth_smaller) {
  const DeviceAddress kept = device().allocate(64 * mib);
  device().release(kept);
  release_much();
  const DeviceAddress smaller = device().allocate(54 * mib);
  EXPECT_NE(smaller, kept);
  const DeviceAddress larger = device().allocate(66 * mib);
  EXPECT_NE(larger, kept);
  const DeviceAddress fits = device().allocate(54 * mib + 1);
  EXPECT_EQ(fits, kept);
  EXPECT_EQ(device().find(fits)->size_bytes, 54 * mib + 1);
  for (const DeviceAddress one : {smaller, larger, fits}) {
    device().release(one);
  }
}

TEST_F(CudaMemoryTest, what_is_kept_is_given_up_before_an_allocation_fails) {
  const std::uint64_t total_bytes = device().info().memory_bytes;
  device().release(device().allocate(200 * mib));
  release_much();
  ASSERT_EQ(taken_bytes(), 200 * mib);
  EXPECT_EQ(device().memory().free_bytes, total_bytes);
  const DeviceAddress all = device().allocate(total_bytes);
  EXPECT_EQ(fake().count("physical"), 1);
  device().release(all);
  // So is what is released and not awaited, of slabs too.
  device().release(device().allocate(100 * mib));
  device().release(device().allocate(300));
  EXPECT_EQ(device().memory().free_bytes, total_bytes - 2 * mib + 512);
  device().release(device().allocate(total_bytes));
}

TEST_F(CudaMemoryTest, memory_is_not_used_again_while_work_queued_before_its_release_runs) {
  const auto stream = device().create_stream();
  const std::vector<std::byte> late(4096, std::byte{1});
  const std::vector<std::byte> early(4096, std::byte{2});
  for (const std::size_t size_bytes : {std::size_t{4096}, 3 * mib, much}) {
    Gate gate;
    const DeviceAddress used = device().allocate(size_bytes);
    gate.hold(*stream);
    stream->copy_to_device(used + (size_bytes - late.size()), late.data(), late.size());
    device().release(used);
    release_much();  // behind which there is an event now
    const DeviceAddress other = device().allocate(size_bytes);
    EXPECT_NE(other, used);
    const DeviceAddress end = other + (size_bytes - early.size());
    device_testing::upload(device(), end, early);
    EXPECT_GE(taken_bytes(), much + 2 * mib) << "unmapped under work";
    gate.open();
    ASSERT_TRUE(wait_for(*stream, patience));
    EXPECT_EQ(device_testing::download(device(), end, early.size()), early);
    device().release(other);
    release_much();
    EXPECT_EQ(device().memory().free_bytes, device().info().memory_bytes);
    EXPECT_LE(taken_bytes(), kept_bytes_max);
  }
}

TEST_F(CudaMemoryTest, memory_of_a_busy_device_goes_back_when_somebody_looks) {
  const auto stream = device().create_stream();
  Gate gate;
  gate.hold(*stream);
  device().release(device().allocate(much));
  device().release(device().allocate(much));
  EXPECT_EQ(taken_bytes(), 2 * much);
  EXPECT_EQ(device().memory().free_bytes, device().info().memory_bytes - 2 * much);
  gate.open();
  ASSERT_TRUE(wait_for(*stream, patience));
  device().release(device().allocate(300));
  EXPECT_EQ(taken_bytes(), 2 * mib);
}

TEST_F(CudaMemoryTest, full_device_waits_for_released_memory) {
  const auto stream = device().create_stream();
  const std::size_t most_bytes = device().info().memory_bytes / 4 * 3;
  for (const std::size_t size_bytes : {most_bytes, 100 * mib}) {
    std::vector<DeviceAddress> all;
    for (std::uint64_t left = device().info().memory_bytes; left >= size_bytes;
         left -= size_bytes) {
      all.push_back(device().allocate(size_bytes));
    }
    Gate gate;
    gate.hold(*stream);
    device().release(all.back());
    const std::jthread later([&gate] {
      std::this_thread::sleep_for(milliseconds(20));
      gate.open();
    });
    all.back() = device().allocate(size_bytes);
    for (const DeviceAddress one : all) {
      device().release(one);
    }
  }
}

TEST_F(CudaMemoryTest, who_asks_again_does_not_wait_for_released_memory) {
  const auto stream = device().create_stream();
  const std::size_t all_bytes = device().info().memory_bytes;
  Gate gate;
  gate.hold(*stream);
  device().release(device().allocate(all_bytes));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(failure_of([&] { static_cast<void>(device().allocate_now(all_bytes)); }).status,
            Status::out_of_device_memory);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  gate.open();
  ASSERT_TRUE(wait_for(*stream, patience));
  device().release(device().allocate_now(all_bytes));
}

TEST_F(CudaMemoryTest, a_small_release_gives_back_what_is_over) {
  const auto stream = device().create_stream();
  const DeviceAddress small = device().allocate(300);
  Gate gate;
  gate.hold(*stream);
  release_much();
  EXPECT_EQ(taken_bytes(), much + 2 * mib) << "work uses it";
  gate.open();
  ASSERT_TRUE(wait_for(*stream, patience));
  device().release(small);
  EXPECT_EQ(taken_bytes(), 2 * mib);
}

TEST_F(CudaMemoryTest, released_memory_that_cannot_be_awaited_is_left_alone_until_it_can) {
  fake().fail("cuCtxRecordEvent", 0, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const DeviceAddress first = device().allocate(much);
  device().release(first);
  const DeviceAddress second = device().allocate(much);
  EXPECT_NE(first, second);
  device().release(second);
  EXPECT_EQ(taken_bytes(), 2 * much);
  // Where memory is short it is asked for again and again.
  const std::jthread later([this] {
    std::this_thread::sleep_for(milliseconds(20));
    fake().fail("cuCtxRecordEvent", 1, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
  const DeviceAddress all = device().allocate(device().info().memory_bytes);
  device().release(all);
  EXPECT_EQ(taken_bytes(), 0U);
}

TEST_F(CudaMemoryTest, captures_are_spoiled_only_where_much_is_released) {
  const auto stream = device().create_stream();
  const auto capturing = device().create_stream();
  Gate gate;
  gate.hold(*stream);
  device().release(device().allocate(much));
  fake().set_capturing(capturing->native_handle(), true);
  device().release(device().allocate(300));
  device().release(device().allocate(100 * mib));
  static_cast<void>(device().memory());
  EXPECT_EQ(fake().count("spoiled_captures"), 0);
  gate.open();
  ASSERT_TRUE(wait_for(*stream, patience));
  EXPECT_EQ(device().memory().free_bytes, device().info().memory_bytes - 2 * mib + 512);
  EXPECT_EQ(fake().count("spoiled_captures"), 0);
  device().release(device().allocate(much));
  EXPECT_EQ(fake().count("spoiled_captures"), 1);
  EXPECT_EQ(taken_bytes(), much + 102 * mib);
  fake().set_capturing(capturing->native_handle(), false);
}

TEST_F(CudaMemoryTest, failure_of_work_before_a_release_is_reported_by_the_next_call) {
  const auto stream = device().create_stream();
  Gate gate;
  gate.hold(*stream);
  device().release(device().allocate(much));
  for (const auto& call :
       std::array<std::function<void()>, 2>{[&] { static_cast<void>(device().allocate(300)); },
                                            [&] { static_cast<void>(device().memory()); }}) {
    fake().fail("cuEventQuery", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    const Failure failure = failure_of(call);
    EXPECT_EQ(failure.status, Status::device_error);
    EXPECT_EQ(failure.device_status, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(failure.object, "cuda:0");
  }
  const DeviceAddress more = device().allocate(much);
  fake().fail("cuEventQuery", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
  device().release(more);
  EXPECT_EQ(taken_bytes(), 2 * much);
  gate.open();
  ASSERT_TRUE(wait_for(*stream, patience));
  release_much();
  EXPECT_EQ(taken_bytes(), 0U);
}

TEST_F(CudaMemoryTest, events_that_cannot_be_made_leave_memory_for_later) {
  const DeviceAddress address = device().allocate(much);
  fake().fail("cuEventCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  device().release(address);
  EXPECT_EQ(taken_bytes(), much);
  release_much();
  EXPECT_EQ(taken_bytes(), 0U);
}

TEST_F(CudaMemoryTest, devices_that_map_no_memory_allocate_it_plainly) {
  fake().set("attribute 102", 0);  // virtual memory management
  remake_device();
  const DeviceAddress address = device().allocate(mib);
  EXPECT_EQ(fake().count("allocations"), 1);
  EXPECT_EQ(fake().count("reservations"), 0);
  EXPECT_EQ(device().memory().free_bytes, device().info().memory_bytes - mib);
  EXPECT_EQ(device().find(address + 1)->base, address);
  EXPECT_EQ(failure_of([&] {
              static_cast<void>(device().allocate(device().info().memory_bytes));
            }).status,
            Status::out_of_device_memory);
  device().release(address);
  EXPECT_EQ(fake().count("allocations"), 0);
  static_cast<void>(device().allocate(mib));
  drop_device();
  EXPECT_EQ(fake().count("allocations"), 0);
}

TEST_F(CudaMemoryTest, drivers_that_record_no_context_allocate_plainly) {
  CudaDriver driver = *cuda_driver();
  driver.ctx_record_event = nullptr;
  const CudaContext context(driver, 0);
  CudaMemory memory(context);
  const DeviceAddress address = memory.allocate(mib, patience);
  EXPECT_EQ(fake().count("reservations"), 0);
  memory.release(address);
  EXPECT_EQ(fake().count("allocations"), 0);
}

TEST_F(CudaMemoryTest, what_is_left_behind_goes_with_the_device) {
  static_cast<void>(device().allocate(300));
  static_cast<void>(device().allocate(3 * mib));
  static_cast<void>(device().allocate_pinned(mib));
  device().release(device().allocate(5 * mib));
  drop_device();
  expect_nothing_left();
  EXPECT_EQ(fake().count("registrations"), 0);
}

TEST_F(CudaMemoryTest, device_goes_when_the_work_on_its_memory_is_over) {
  auto stream = device().create_stream();
  Gate gate;
  gate.hold(*stream);
  const DeviceAddress left = device().allocate(3 * mib);
  const std::vector<std::byte> bytes(3 * mib);
  stream->copy_to_device(left, bytes.data(), bytes.size());
  stream.reset();
  const std::jthread later([&gate] {
    std::this_thread::sleep_for(milliseconds(20));
    gate.open();
  });
  drop_device();
  expect_nothing_left();
}

TEST_F(CudaMemoryTest, dead_context_is_not_waited_for) {
  for (const char* function : {"cuCtxRecordEvent", "cuEventQuery"}) {
    static_cast<void>(device().allocate(3 * mib));
    fake().fail(function, 0, CUDA_ERROR_ILLEGAL_ADDRESS);
    const auto start = std::chrono::steady_clock::now();
    remake_device();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    expect_nothing_left();
    fake().reset();
  }
}

TEST_F(CudaMemoryTest, threads_take_and_release_blocks_at_once) {
  std::atomic<int> wrong{0};
  const auto work = [&](std::size_t seed) {
    const DeviceScope scope(device());
    for (std::size_t round = 0; round < 200; ++round) {
      const std::size_t size_bytes = 1 + (seed * 7919 + round * 104729 * 31) % (70 * mib);
      const DeviceAddress address = device().allocate(size_bytes);
      const auto found = device().find(address + (size_bytes - 1));
      wrong += !found || found->base != address || found->size_bytes != size_bytes ? 1 : 0;
      device().release(address);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t seed = 0; seed < 4; ++seed) {
      threads.emplace_back(work, seed);
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(taken_bytes(), 2 * kept_bytes_max);
}

// By sysfs's word for the fake driver's PCI address, which it writes in capitals.
TEST_F(CudaMemoryTest, pinned_memory_prefers_the_node_that_sysfs_says_is_near) {
  const TemporaryFolder sysfs;
  const auto folder = sysfs.path() / "bus" / "pci" / "devices" / "0000:fa:ce.0";
  std::filesystem::create_directories(folder);
  for (const int node : {0, -1}) {
    std::ofstream(folder / "numa_node") << node << '\n';
    const auto near = make_cuda_device(0, sysfs.path());
    EXPECT_EQ(near->info().numa_node, node);
    std::byte* const memory = near->allocate_pinned(4 * mib);
    if (testing::numa_policy(memory)) {
      const testing::NumaPolicy preferred{MPOL_PREFERRED, 1};
      EXPECT_EQ(*testing::numa_policy(memory), node == 0 ? preferred : testing::NumaPolicy{});
    }
    near->release_pinned(memory);
  }
}

}  // namespace
}  // namespace hippogriff
