// Windows of a file in the page cache: when they are worth registering, and what is read in place.
#include "array/file_windows.hpp"

#include "array/window_registrar.hpp"
#include "device/host_device.hpp"
#include "testing/bytes.hpp"
#include "testing/device_faults.hpp"
#include "testing/eventually.hpp"
#include "testing/faulty_device.hpp"
#include "testing/storage_fixture.hpp"
#include "testing/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t size_bytes =
    17 * mebibyte + 100;  // windows of 8, 8 and 1 MiB, and a page's part

class FileWindowsTest : public ::testing::Test {
 protected:
  FileWindowsTest() : bytes_(pattern(0, page_bytes + size_bytes)) {
    std::ofstream(folder_.file("array"), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes_.data()),
               static_cast<std::streamsize>(bytes_.size()));
    file_ = make_system_storage()->open(folder_.file("array"), FileAccess::read_write);
    windows_ = std::make_shared<FileWindows>(
        make_faulty_device(make_host_device({.memory_bytes = mebibyte}), faults_),
        file_,
        Range{page_bytes, size_bytes},
        4096U);
  }

  // As many copies as make a window worth registering; 0: never.
  int copies_until_worth(const Range& part) {
    for (int copies = 1; copies < 100'000; ++copies) {
      if (windows_->note_copied(part)) {
        return copies;
      }
    }
    return 0;
  }

  [[nodiscard]] bool is_there(const Range& part) const {
    const std::byte* place = windows_->find(part);
    return place != nullptr &&
           std::equal(place,
                      place + part.size,
                      bytes_.begin() + static_cast<std::ptrdiff_t>(page_bytes + part.offset));
  }

  static constexpr std::uint64_t page_bytes = 4096;
  TemporaryFolder folder_;
  std::vector<std::byte> bytes_;
  std::shared_ptr<DeviceFaults> faults_ = std::make_shared<DeviceFaults>();
  std::shared_ptr<File> file_;
  std::shared_ptr<FileWindows> windows_;
};

TEST_F(FileWindowsTest, a_window_is_worth_it_when_a_quarter_of_its_lines_was_copied) {
  EXPECT_FALSE(windows_->hottest().has_value());
  EXPECT_NEAR(copies_until_worth({8 * mebibyte, 4096}), 512, 1);
  ASSERT_TRUE(windows_->hottest().has_value());
  EXPECT_EQ(windows_->hottest()->window, 1U);
  EXPECT_GT(copies_until_worth({0, 512}), 512) << "shorter copies take less long";
  ASSERT_TRUE(windows_->put_in_place(1));
  EXPECT_EQ(windows_->hottest()->window, 0U);
}

TEST_F(FileWindowsTest, a_short_last_window_is_worth_it_after_a_quarter_of_its_own_lines) {
  EXPECT_NEAR(copies_until_worth({16 * mebibyte, 4096}), 64, 1);
}

TEST_F(FileWindowsTest, a_window_that_failed_many_times_is_tried_again_yet) {
  for (int time = 0; time < 20; ++time) {
    faults_->fail(
        DeviceOperation::register_host, 1, some_device_failure(DeviceOperation::register_host));
    EXPECT_FALSE(windows_->put_in_place(2));
  }
  const Range all{16 * mebibyte, mebibyte};
  std::uint64_t copies = 1;
  while (!windows_->note_copied(all) && copies < 1'000'000) {
    ++copies;
  }
  EXPECT_LT(copies, 1'000'000U);
  EXPECT_TRUE(windows_->put_in_place(2));
}

TEST_F(FileWindowsTest, lines_that_were_copied_together_are_worth_less) {
  EXPECT_LE(copies_until_worth({0, mebibyte / 4}), 24);
  EXPECT_GT(copies_until_worth({8 * mebibyte, mebibyte / 4}), 8) << "a quarter of the bytes";
}

TEST_F(FileWindowsTest, what_is_registered_is_found_within_its_window_alone) {
  EXPECT_EQ(windows_->find({8 * mebibyte, 512}), nullptr);
  ASSERT_TRUE(windows_->put_in_place(1));
  EXPECT_TRUE(is_there({8 * mebibyte, 512}));
  EXPECT_TRUE(is_there({8 * mebibyte, 8 * mebibyte}));
  EXPECT_FALSE(is_there({8 * mebibyte - 512, 512}));
  EXPECT_FALSE(is_there({8 * mebibyte - 512, 1024})) << "half of it";
  EXPECT_FALSE(is_there({16 * mebibyte - 512, 1024})) << "half of it";
  EXPECT_EQ(windows_->in_place_bytes(), 8 * mebibyte);
  EXPECT_EQ(copies_until_worth({8 * mebibyte, 512}), 0) << "it is done";
  EXPECT_TRUE(windows_->put_in_place(1));
}

TEST_F(FileWindowsTest, the_last_window_ends_with_the_range) {
  ASSERT_TRUE(windows_->put_in_place(2));
  EXPECT_TRUE(is_there({16 * mebibyte, mebibyte + 100}));
  EXPECT_EQ(windows_->find({16 * mebibyte, mebibyte + 101}), nullptr);
  EXPECT_EQ(windows_->find({size_bytes, 1}), nullptr);
  EXPECT_EQ(windows_->find({std::uint64_t{1} << 60, 512}), nullptr);
}

TEST_F(FileWindowsTest, all_of_it_can_be_wanted_at_once) {
  const std::byte* all = windows_->put_all_in_place();
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(windows_->in_place_bytes(), size_bytes);
  EXPECT_EQ(all, windows_->find({0, 1}));
  EXPECT_TRUE(is_there({16 * mebibyte, mebibyte}));
}

TEST_F(FileWindowsTest, a_window_that_the_file_has_lost_is_copied) {
  ASSERT_GT(copies_until_worth({8 * mebibyte, 4096}), 0);
  file_->truncate(page_bytes + 12 * mebibyte);
  EXPECT_FALSE(windows_->put_in_place(1));
  EXPECT_FALSE(windows_->hottest().has_value()) << "it would be tried for ever";
  EXPECT_EQ(windows_->find({8 * mebibyte, 512}), nullptr);
  EXPECT_TRUE(windows_->put_in_place(0));
  EXPECT_EQ(windows_->put_all_in_place(), nullptr);
}

TEST_F(FileWindowsTest, a_window_that_the_device_refuses_is_never_tried_again) {
  ASSERT_GT(copies_until_worth({0, 4096}), 0);
  faults_->fail(DeviceOperation::register_host, 1, {.status = Status::unsupported});
  EXPECT_FALSE(windows_->put_in_place(0));
  EXPECT_FALSE(windows_->put_in_place(0));
  EXPECT_EQ(copies_until_worth({0, 4096}), 0);
  EXPECT_FALSE(windows_->hottest().has_value());
  EXPECT_TRUE(windows_->put_in_place(1));
}

TEST_F(FileWindowsTest, a_window_that_fails_for_now_is_tried_again_after_twice_the_copies) {
  const int first = copies_until_worth({0, 4096});
  ASSERT_GT(first, 0);
  for (const int times : {2, 4}) {
    faults_->fail(
        DeviceOperation::register_host, 1, some_device_failure(DeviceOperation::register_host));
    EXPECT_FALSE(windows_->put_in_place(0));
    EXPECT_FALSE(windows_->hottest().has_value()) << "it would be tried for ever";
    EXPECT_GE(copies_until_worth({0, 4096}), times * (first - 1));
  }
  EXPECT_TRUE(windows_->put_in_place(0));
  EXPECT_EQ(windows_->in_place_bytes(), 8 * mebibyte);
}

TEST_F(FileWindowsTest, a_driver_that_does_not_come_back_holds_nobody_up_for_long) {
  faults_->block(DeviceOperation::register_host);
  std::jthread stuck([&] { static_cast<void>(windows_->put_in_place(0)); });
  ASSERT_TRUE(faults_->wait_until_held(1, std::chrono::seconds(60)));
  EXPECT_FALSE(windows_->close(std::chrono::milliseconds(20)));
  faults_->clear();
  stuck.join();
  EXPECT_TRUE(windows_->close(std::chrono::seconds(60)));
}

TEST_F(FileWindowsTest, nothing_is_registered_once_they_are_closed) {
  ASSERT_TRUE(windows_->put_in_place(0));
  EXPECT_TRUE(windows_->close(std::chrono::seconds(60)));
  EXPECT_EQ(windows_->find({0, 512}), nullptr);
  EXPECT_FALSE(windows_->put_in_place(1));
  EXPECT_EQ(windows_->in_place_bytes(), 0U);
  EXPECT_TRUE(windows_->close(std::chrono::seconds(60)));
  EXPECT_EQ(faults_->outstanding().registrations, 0);
}

TEST_F(FileWindowsTest, a_registrar_takes_the_windows_of_all_arrays) {
  const auto others = std::make_shared<FileWindows>(
      make_host_device({.memory_bytes = mebibyte}), file_, Range{0, 9 * mebibyte}, 4096U);
  WindowRegistrar registrar;
  registrar.watch(windows_);
  registrar.watch(others);
  ASSERT_GT(copies_until_worth({0, 4096}), 0);
  ASSERT_GT(copies_until_worth({16 * mebibyte, 4096}), 0);
  while (!others->note_copied({8 * mebibyte, 4096})) {
  }
  registrar.wake();
  EXPECT_TRUE(testing::eventually([&] {
    return windows_->in_place_bytes() == size_bytes - 8 * mebibyte &&
           others->in_place_bytes() == mebibyte;
  }));
  EXPECT_TRUE(is_there({16 * mebibyte, 512}));
  EXPECT_EQ(windows_->find({8 * mebibyte, 512}), nullptr) << "nobody has read there";
}

TEST_F(FileWindowsTest,
       a_window_that_came_into_the_page_cache_later_is_registered_when_it_is_read) {
  file_->truncate(page_bytes + 12 * mebibyte);
  WindowRegistrar registrar;
  registrar.watch(windows_);
  ASSERT_GT(copies_until_worth({8 * mebibyte, 4096}), 0);
  registrar.wake();
  ASSERT_TRUE(testing::eventually([&] { return !windows_->hottest().has_value(); }))
      << "it is lost";
  EXPECT_EQ(windows_->in_place_bytes(), 0U);
  file_->truncate(page_bytes + size_bytes);
  std::vector<std::byte> bytes(size_bytes);
  ASSERT_EQ(file_->read(bytes, page_bytes), size_bytes);  // zeros, and in the page cache now
  ASSERT_GT(copies_until_worth({8 * mebibyte, 4096}), 0);
  registrar.wake();
  EXPECT_TRUE(testing::eventually([&] { return windows_->in_place_bytes() == 8 * mebibyte; }));
}

TEST_F(FileWindowsTest, of_long_lines_are_worth_it_when_they_are_read_again) {
  windows_ = std::make_shared<FileWindows>(make_host_device({.memory_bytes = mebibyte}),
                                           file_,
                                           Range{page_bytes, size_bytes},
                                           static_cast<std::uint32_t>(mebibyte / 16));
  for (std::uint64_t offset = 0; offset < 8 * mebibyte - mebibyte / 16; offset += mebibyte / 16) {
    ASSERT_FALSE(windows_->note_copied({offset, mebibyte / 16}));
  }
  EXPECT_LE(copies_until_worth({0, mebibyte / 16}), 3);
  EXPECT_TRUE(windows_->hottest().has_value());
}

TEST_F(FileWindowsTest, copies_registrations_and_the_end_may_come_at_any_time) {
  WindowRegistrar registrar;
  registrar.watch(windows_);
  const auto copy_some = [&](std::uint64_t thread) {
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const Range part{(thread * 7919 + i * 104'729) % (size_bytes / 512) * 512, 512};
      if (windows_->find(part) == nullptr && windows_->note_copied(part)) {
        registrar.wake();
      }
      if (thread == 3 && i == 15'000) {
        static_cast<void>(windows_->close(std::chrono::seconds(60)));
      }
    }
  };
  std::vector<std::jthread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back(copy_some, thread);
  }
  threads.clear();
  EXPECT_EQ(windows_->in_place_bytes(), 0U);
}

}  // namespace
}  // namespace hippogriff::ondemand
