// What every device promises about memory: its own, pinned memory, and registered pages of files.
#pragma once

#include "testing/device_fixture.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace hippogriff::device_testing {

// Pages of an unlinked temporary file, mapped shared.
class MappedFile {
 public:
  explicit MappedFile(std::size_t size_bytes) : size_bytes_(size_bytes) {
    std::string path = ::testing::TempDir() + "hippogriff-device-XXXXXX";
    fd_ = mkstemp(path.data());
    if (fd_ < 0 || unlink(path.c_str()) != 0 ||
        ftruncate(fd_, static_cast<off_t>(size_bytes)) != 0) {
      throw_io("make a temporary file", path, no_offset, errno);
    }
    void* const pages = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (pages == MAP_FAILED) {
      throw_io("map", path, 0, errno);
    }
    data_ = static_cast<std::byte*>(pages);
  }

  ~MappedFile() {
    munmap(data_, size_bytes_);
    close(fd_);
  }

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile(MappedFile&&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;

  [[nodiscard]] int fd() const { return fd_; }

  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_bytes_}; }

 private:
  int fd_ = -1;
  std::byte* data_ = nullptr;
  std::size_t size_bytes_;
};

template <typename Factory>
class DeviceMemoryConformance : public DeviceFixture<Factory> {};

TYPED_TEST_SUITE_P(DeviceMemoryConformance);

TYPED_TEST_P(DeviceMemoryConformance, info_names_the_device_and_its_memory) {
  const DeviceInfo& info = this->device().info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.model.empty());
  EXPECT_FALSE(info.uuid.empty());
  EXPECT_GT(info.memory_bytes, 0U);
  const DeviceMemory memory = this->device().memory();
  EXPECT_GT(memory.total_bytes, 0U);
  EXPECT_LE(memory.free_bytes, memory.total_bytes);
}

TYPED_TEST_P(DeviceMemoryConformance, allocations_are_aligned_and_apart) {
  Device& device = this->device();
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> extents;
  for (const std::size_t size_bytes : {1UL, 255UL, 256UL, 257UL, 4097UL, 131073UL, 5000001UL}) {
    buffers.push_back(std::make_unique<DeviceBuffer>(device, size_bytes));
    const DeviceAddress address = buffers.back()->address();
    EXPECT_EQ(address.value % 256, 0U) << size_bytes;
    extents.emplace_back(address.value, address.value + size_bytes);
  }
  std::sort(extents.begin(), extents.end());
  for (std::size_t index = 1; index < extents.size(); ++index) {
    EXPECT_LE(extents[index - 1].second, extents[index].first);
  }
}

TYPED_TEST_P(DeviceMemoryConformance, find_knows_live_allocations_to_their_last_byte) {
  Device& device = this->device();
  constexpr std::size_t size_bytes = 100'000;
  const DeviceAddress address = device.allocate(size_bytes);
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1}, size_bytes - 1}) {
    const auto found = device.find(address + offset);
    ASSERT_TRUE(found.has_value()) << offset;
    EXPECT_EQ(found->base, address);
    EXPECT_GE(found->size_bytes, size_bytes);
  }
  device.release(address);
  EXPECT_FALSE(device.find(DeviceAddress{0}).has_value());
  const int on_the_stack = 0;
  EXPECT_FALSE(
      device.find(DeviceAddress{reinterpret_cast<std::uintptr_t>(&on_the_stack)}).has_value());
}

TYPED_TEST_P(DeviceMemoryConformance, allocate_refuses_zero_bytes) {
  EXPECT_EQ(status_of([&] { static_cast<void>(this->device().allocate(0)); }),
            Status::invalid_argument);
  EXPECT_EQ(status_of([&] { static_cast<void>(this->device().allocate_pinned(0)); }),
            Status::invalid_argument);
}

TYPED_TEST_P(DeviceMemoryConformance, allocate_beyond_the_memory_says_asked_free_and_total) {
  Device& device = this->device();
  const std::uint64_t total_bytes = device.memory().total_bytes;
  for (const std::uint64_t asked_bytes : {total_bytes + 1, UINT64_MAX / 4}) {
    try {
      device.release(device.allocate(asked_bytes));
      FAIL() << "allocated " << asked_bytes << " of " << total_bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.failure().status, Status::out_of_device_memory);
      EXPECT_EQ(error.failure().object, device.info().name);
      EXPECT_NE(error.failure().detail.find(std::to_string(asked_bytes)), std::string::npos)
          << error.what();
      EXPECT_NE(error.failure().detail.find(std::to_string(device.memory().total_bytes)),
                std::string::npos)
          << error.what();
    }
  }
  const DeviceBuffer still_works(device, 4096);
}

TYPED_TEST_P(DeviceMemoryConformance, freed_memory_can_be_had_again) {
  Device& device = this->device();
  // Three quarters of what is free: a second one beside it would not fit.
  const std::size_t size_bytes = device.memory().free_bytes / 4 * 3;
  for (int round = 0; round < 3; ++round) {
    const DeviceBuffer most(device, size_bytes);
    EXPECT_EQ(status_of([&] { device.release(device.allocate(size_bytes)); }),
              Status::out_of_device_memory);
  }
}

TYPED_TEST_P(DeviceMemoryConformance, copies_reach_past_four_gibibytes) {
  Device& device = this->device();
  constexpr std::uint64_t boundary = std::uint64_t{4} << 30U;
  if (device.memory().free_bytes < boundary + (std::uint64_t{1} << 20U)) {
    GTEST_SKIP() << "less than 4 GiB of device memory";
  }
  const DeviceBuffer buffer(device, boundary + 4096);
  const auto sent = pattern(64, 5);
  upload(device, buffer.address() + (boundary - 31), sent);
  upload(device, buffer.address() + 0, pattern(64, 6));
  EXPECT_EQ(download(device, buffer.address() + (boundary - 31), sent.size()), sent);
}

TYPED_TEST_P(DeviceMemoryConformance, pinned_memory_is_page_aligned_and_copies) {
  Device& device = this->device();
  const std::size_t size_bytes = 3 * page_bytes() + 1;
  const PinnedBuffer pinned(device, size_bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned.data()) % page_bytes(), 0U);
  fill_pattern(pinned.bytes(), 9);
  const DeviceBuffer buffer(device, size_bytes);
  upload(device, buffer.address(), pinned.bytes());
  EXPECT_EQ(download(device, buffer.address(), size_bytes), pattern(size_bytes, 9));
}

TYPED_TEST_P(DeviceMemoryConformance, file_pages_registered_for_reading_copy_to_the_device) {
  Device& device = this->device();
  if (!device.info().can.registers_read_only) {
    GTEST_SKIP() << device.info().name << " does not register pages for reading";
  }
  const std::size_t size_bytes = 8 * page_bytes();
  const MappedFile file(size_bytes);
  fill_pattern(file.bytes(), 11);
  const DeviceBuffer buffer(device, size_bytes);
  for (int round = 0; round < 2; ++round) {
    device.register_host(file.data(), size_bytes, HostAccess::read_only);
    upload(device, buffer.address(), file.bytes());
    device.unregister_host(file.data());
  }
  EXPECT_EQ(download(device, buffer.address(), size_bytes), pattern(size_bytes, 11));
}

TYPED_TEST_P(DeviceMemoryConformance, shared_pages_registered_for_writing_take_device_bytes) {
  Device& device = this->device();
  if (!device.info().can.registers_read_write) {
    GTEST_SKIP() << device.info().name << " does not register pages for writing";
  }
  const std::size_t size_bytes = 4 * page_bytes();
  void* const pages =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto* const memory = static_cast<std::byte*>(pages);
  const DeviceBuffer buffer(device, size_bytes);
  const auto sent = pattern(size_bytes, 13);
  upload(device, buffer.address(), sent);
  device.register_host(memory, size_bytes, HostAccess::read_write);
  {
    const auto stream = device.create_stream();
    stream->copy_to_host(memory, buffer.address(), size_bytes);
    EXPECT_TRUE(wait_for(*stream, patience));
  }
  device.unregister_host(memory);
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), memory));
  munmap(pages, size_bytes);
}

TYPED_TEST_P(DeviceMemoryConformance, register_refuses_overlaps_and_broken_pages) {
  Device& device = this->device();
  if (!device.info().can.registers_read_only) {
    GTEST_SKIP() << device.info().name << " does not register pages for reading";
  }
  const std::size_t page = page_bytes();
  const MappedFile file(4 * page);
  const auto try_register = [&](std::size_t offset_bytes, std::size_t size_bytes) {
    return status_of([&] {
      device.register_host(file.data() + offset_bytes, size_bytes, HostAccess::read_only);
    });
  };
  EXPECT_EQ(try_register(1, page), Status::invalid_argument);
  EXPECT_EQ(try_register(0, page + 1), Status::invalid_argument);
  EXPECT_EQ(try_register(0, 0), Status::invalid_argument);
  ASSERT_EQ(try_register(page, 2 * page), Status::ok);
  EXPECT_EQ(try_register(page, 2 * page), Status::device_error);
  EXPECT_EQ(try_register(2 * page, 2 * page), Status::device_error);
  EXPECT_EQ(try_register(0, 2 * page), Status::device_error);
  EXPECT_EQ(try_register(0, page), Status::ok);
  device.unregister_host(file.data());
  device.unregister_host(file.data() + page);
  device.unregister_host(file.data() + page);  // no longer registered: ignored
  EXPECT_EQ(try_register(0, 4 * page), Status::ok);
  device.unregister_host(file.data());
}

TYPED_TEST_P(DeviceMemoryConformance, register_past_the_end_of_a_file_fails_without_a_signal) {
  Device& device = this->device();
  if (!device.info().can.registers_read_only) {
    GTEST_SKIP() << device.info().name << " does not register pages for reading";
  }
  const MappedFile file(4 * page_bytes());
  ASSERT_EQ(ftruncate(file.fd(), static_cast<off_t>(page_bytes())), 0);
  EXPECT_EQ(status_of([&] {
              device.register_host(file.data(), 4 * page_bytes(), HostAccess::read_only);
            }),
            Status::device_error);
  device.register_host(file.data(), page_bytes(), HostAccess::read_only);
  device.unregister_host(file.data());
}

TYPED_TEST_P(DeviceMemoryConformance, threads_allocate_and_release_at_once) {
  Device& device = this->device();
  const std::uint64_t free_before = device.memory().free_bytes;
  std::atomic<int> wrong{0};
  const auto work = [&device, &wrong](std::uint32_t seed) {
    const DeviceScope scope(device);
    for (std::uint32_t round = 0; round < 50; ++round) {
      const std::size_t size_bytes = 1 + (seed * 7919 + round * 104729) % 300'000;
      const DeviceBuffer buffer(device, size_bytes);
      const auto found = device.find(buffer.address() + (size_bytes - 1));
      wrong += !found.has_value() || found->base != buffer.address() ? 1 : 0;
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back(work, seed);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong.load(), 0);
  // A pool may keep a little.
  EXPECT_GE(device.memory().free_bytes + (std::uint64_t{512} << 20U), free_before);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceMemoryConformance,
                            info_names_the_device_and_its_memory,
                            allocations_are_aligned_and_apart,
                            find_knows_live_allocations_to_their_last_byte,
                            allocate_refuses_zero_bytes,
                            allocate_beyond_the_memory_says_asked_free_and_total,
                            freed_memory_can_be_had_again,
                            copies_reach_past_four_gibibytes,
                            pinned_memory_is_page_aligned_and_copies,
                            file_pages_registered_for_reading_copy_to_the_device,
                            shared_pages_registered_for_writing_take_device_bytes,
                            register_refuses_overlaps_and_broken_pages,
                            register_past_the_end_of_a_file_fails_without_a_signal,
                            threads_allocate_and_release_at_once);

}  // namespace hippogriff::device_testing
