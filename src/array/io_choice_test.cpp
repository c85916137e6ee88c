// Past the page cache or through it: when, and that nothing else changes.
#include "array/io_choice.hpp"

#include "testing/array_fixture.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t line = 4096;

Backing opened(const std::string& path, std::uint64_t size, std::uint64_t offset = 0) {
  Backing backing;
  backing.files = {{make_system_storage()->open(path, FileAccess::read_write), path}};
  backing.size_bytes = size;
  backing.file_offset = offset;
  return backing;
}

// What of the first array's file is in the page cache, after it was asked to leave.
std::uint64_t resident_after(TestArray& array, const std::function<void()>& work) {
  const auto file = make_system_storage()->open(array.path(), FileAccess::read_write);
  file->sync();
  EXPECT_EQ(::posix_fadvise(file->fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
  work();
  const auto residency = file->residency({0, array.array().size_bytes()});
  return residency ? residency->resident_bytes : 0;
}

TEST(IoChoice, names_are_three) {
  EXPECT_EQ(io_kind_of("auto"), IoKind::automatic);
  EXPECT_EQ(io_kind_of("cached"), IoKind::cached);
  EXPECT_EQ(io_kind_of("direct"), IoKind::direct);
  EXPECT_EQ(failure_of([] { static_cast<void>(io_kind_of("fast")); }).status,
            Status::invalid_argument);
}

TEST(IoChoice, a_cold_file_that_memory_has_no_room_for_is_read_directly) {
  const TestArray array({.size_bytes = 100 * line, .line_bytes = line});
  const auto storage = make_system_storage();
  auto plan = std::make_shared<FaultPlan>();
  const auto faulty = make_faulty_storage(storage, plan);
  plan->add({.point = FaultPoint::residency,
             .kind = FaultKind::residency_wrong,
             .times = UINT64_MAX,
             .fraction = 0.25});
  const auto choice = [&](std::uint64_t available, std::uint32_t line_bytes) {
    Backing backing = opened(array.path(), 100 * line);
    backing.files[0].file = faulty->open(array.path(), FileAccess::read);
    choose_io(backing, {.line_bytes = line_bytes, .available_bytes = available});
    EXPECT_FALSE(backing.io_reason.empty());
    return backing.is_direct;
  };
  const FileFacts facts = opened(array.path(), 1).files[0].file->facts();
  if (!facts.direct) {
    EXPECT_FALSE(choice(0, line)) << "falls back";
    GTEST_SKIP() << facts.why_not_direct;
  }
  EXPECT_TRUE(choice(75 * line - 1, line));
  EXPECT_FALSE(choice(75 * line, line)) << "the rest has room in the page cache";
}

TEST(IoChoice, what_cannot_be_direct_is_cached_and_says_why) {
  const TestArray array({.size_bytes = 100 * line, .line_bytes = line});
  Backing odd = opened(array.path(), 50 * line, 100);
  choose_io(odd, {.kind = IoKind::direct, .line_bytes = line});
  EXPECT_FALSE(odd.is_direct);
  EXPECT_EQ(odd.io_reason.find(array.path() + ": "), 0U) << odd.io_reason;
  EXPECT_TRUE(odd.files[0].direct.size == 0);
}

TEST(IoChoice, pages_that_are_not_wholly_the_arrays_go_through_the_page_cache) {
  const TestArray array({.size_bytes = 100 * line, .line_bytes = line});
  Backing backing = opened(array.path(), 10 * line, 1024);
  choose_io(backing, {.kind = IoKind::direct, .line_bytes = line});
  if (!backing.is_direct) {
    GTEST_SKIP() << backing.io_reason;
  }
  const FilePart head = backing.part_at(0, line, 0);
  EXPECT_FALSE(head.is_direct);
  EXPECT_EQ(head.size_bytes, line - 1024);
  const FilePart middle = backing.part_at(head.size_bytes, 100 * line, 0);
  EXPECT_TRUE(middle.is_direct);
  EXPECT_EQ(middle.offset, line);
  EXPECT_EQ(middle.size_bytes, 9 * line);
  EXPECT_FALSE(backing.part_at(10 * line - 1024, 1024, 0).is_direct);
}

TEST(DirectArray, leaves_nothing_in_the_page_cache_but_the_tail) {
  TestArray cached({.size_bytes = 100 * line, .line_bytes = line});
  EXPECT_GE(resident_after(cached, [&] { static_cast<void>(cached.view<char>()[50 * line]); }),
            line);
  TestArray array({.size_bytes = 100 * line + 10, .line_bytes = line, .io = IoKind::direct});
  if (!array.is_direct()) {
    GTEST_SKIP() << "no O_DIRECT here";
  }
  const auto view = array.view<std::uint8_t>();
  const std::uint64_t resident = resident_after(array, [&] {
    for (std::uint64_t i = 0; i < view.size(); i += 100) {
      ASSERT_EQ(static_cast<std::byte>(view[i]), pattern_at(i));
      ASSERT_EQ(view.write(i, 1), NvmeStatus::success);
    }
    array.array().flush();
  });
  EXPECT_LE(resident, 2 * line);
  EXPECT_EQ(array.stored()[100 * line], std::byte{1}) << "the tail was written";
  EXPECT_EQ(array.stored()[0], std::byte{1});
}

TEST(DirectArray, reads_and_writes_that_come_in_pieces_go_on_where_they_are_aligned) {
  TestArray array(
      {.size_bytes = std::uint64_t{1} << 20, .line_bytes = 16384, .io = IoKind::direct});
  array.plan().randomize({.seed = 4, .try_again = 0.1, .shorten = 0.4});
  const auto view = array.view<std::uint32_t>();
  for (std::uint32_t i = 0; i < view.size(); i += 2) {
    ASSERT_EQ(view.write(i, i), NvmeStatus::success);
  }
  array.array().flush();
  const auto stored = array.stored();
  for (std::uint32_t i = 0; i < view.size(); i += 2) {
    std::uint32_t value = 0;
    std::memcpy(&value, stored.data() + std::size_t{4} * i, 4);
    ASSERT_EQ(value, i);
    ASSERT_EQ(stored[std::size_t{4} * i + 5], pattern_at(std::size_t{4} * i + 5));
  }
}

TEST(DirectArray, a_file_that_was_cut_within_a_line_is_told) {
  TestArray array({.size_bytes = 100 * line, .line_bytes = line, .io = IoKind::direct});
  std::filesystem::resize_file(array.path(), 10 * line + 100);
  std::uint8_t value = 0;
  EXPECT_EQ(array.view<std::uint8_t>().read(10 * line - 1, value), NvmeStatus::success);
  EXPECT_EQ(array.view<std::uint8_t>().read(10 * line, value), NvmeStatus::unrecovered_read);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).status, Status::short_file);
}

}  // namespace
}  // namespace hippogriff::ondemand
