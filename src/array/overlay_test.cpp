// Mode c: what is written is seen by the array alone, whatever the cache throws out.
#include "array/overlay.hpp"

#include "testing/array_fixture.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace hippogriff::ondemand {
namespace {

TEST(Overlay, lines_are_there_once_they_are_noted) {
  const TemporaryFolder folder;
  const auto storage = make_system_storage();
  Overlay overlay(*storage,
                  {.array = "a",
                   .size_bytes = 1000 * usual_line_bytes + 1,
                   .line_bytes = usual_line_bytes,
                   .folders = {folder.path().string()}});
  for (const std::uint64_t number : {0U, 63U, 64U, 1000U}) {
    EXPECT_FALSE(overlay.has(number));
    overlay.note(number);
    EXPECT_TRUE(overlay.has(number));
  }
  EXPECT_FALSE(overlay.has(1));
  EXPECT_EQ(overlay.line_with({usual_line_bytes, usual_line_bytes}), 1U);
  EXPECT_EQ(overlay.line_with({usual_line_bytes + 1, usual_line_bytes}), std::nullopt);
  EXPECT_TRUE(overlay.is_line({1000 * usual_line_bytes, 1}));
  EXPECT_FALSE(overlay.is_line({0, usual_line_bytes - 1}));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file has no name";
}

TEST(Overlay, a_folder_that_takes_no_file_is_named) {
  const auto storage = make_system_storage();
  const Failure failure = failure_of([&] {
    const Overlay overlay(*storage,
                          {.array = "a",
                           .size_bytes = 1,
                           .line_bytes = usual_line_bytes,
                           .folders = {"nowhere/at/all"}});
  });
  EXPECT_EQ(failure.status, Status::io_error);
  EXPECT_EQ(failure.errno_value, ENOENT);
  EXPECT_NE(failure.object.find("nowhere/at/all"), std::string::npos);
}

TEST(CopyOnWrite, what_was_written_stays_in_the_array_and_never_reaches_the_file) {
  for (const bool in_memory : {false, true}) {
    TestArray array(
        {.cache_bytes = 2 * usual_line_bytes, .in_memory = in_memory, .overlaid = true});
    const auto before = array.stored();
    const auto view = array.view<std::uint32_t>();
    for (std::uint32_t i = 0; i < view.size(); i += 3) {
      ASSERT_EQ(view.write(i, i), NvmeStatus::success);
    }
    array.array().flush();
    std::vector<std::uint32_t> numbers(view.size());
    ASSERT_EQ(view.read_range(Alone{}, 0, view.size(), numbers.data()), NvmeStatus::success);
    for (std::uint32_t i = 0; i < view.size(); ++i) {
      std::uint32_t expected = i;
      if (i % 3 != 0) {
        std::memcpy(&expected, before.data() + std::size_t{4} * i, 4);
      }
      ASSERT_EQ(numbers[i], expected);
    }
    EXPECT_GE(array.array().served().writes, 126U) << "lines that left the cache of two";
    EXPECT_EQ(array.plan().seen(FaultPoint::sync), 0U);
    EXPECT_EQ(array.stored(), before);
    array.array().check();
  }
}

TEST(CopyOnWrite, a_full_folder_is_told_with_its_name_and_the_line_stays) {
  TestArray array({.cache_bytes = usual_line_bytes, .overlaid = true});
  array.plan().add({.point = FaultPoint::queued_write,
                    .kind = FaultKind::error,
                    .times = 2,
                    .errno_value = ENOSPC});
  const auto view = array.view<std::uint32_t>();
  ASSERT_EQ(view.write(0, 77), NvmeStatus::success);
  std::uint32_t value = 0;
  EXPECT_EQ(view.read(1000, value), NvmeStatus::write_fault) << "its place was dirty";
  const Failure failure = failure_of([&] { array.array().check(); });
  EXPECT_EQ(failure.errno_value, ENOSPC);
  EXPECT_EQ(failure.object.find("changes of " + array.path() + " in /"), 0U) << failure.object;
  array.array().clear_failure();
  EXPECT_EQ(view.read(1000, value), NvmeStatus::success);
  EXPECT_EQ(view[0], 77U);
}

TEST(CopyOnWrite, changes_that_cannot_be_read_again_are_no_old_bytes) {
  TestArray array({.cache_bytes = usual_line_bytes, .overlaid = true});
  const auto view = array.view<std::uint32_t>();
  ASSERT_EQ(view.write(0, 77), NvmeStatus::success);
  static_cast<void>(view[1000]);
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 1});
  std::uint32_t value = 0;
  EXPECT_EQ(view.read(0, value), NvmeStatus::unrecovered_read);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).errno_value, EIO);
}

TEST(CopyOnWrite, commands_that_are_not_of_one_line_are_refused) {
  TestArray array({.line_bytes = 1024, .overlaid = true});
  const Cache& cache = array.array().cache();
  const auto status_of = [&](Opcode opcode, const BlockRange& blocks) {
    return answer_to(cache,
                     make_command(opcode, blocks, reinterpret_cast<std::uint64_t>(cache.lines)))
        .status;
  };
  EXPECT_EQ(status_of(Opcode::read, {1, 1}), NvmeStatus::success);
  EXPECT_EQ(status_of(Opcode::read, {1, 2}), NvmeStatus::invalid_field);
  EXPECT_EQ(status_of(Opcode::write, {2, 1}), NvmeStatus::invalid_field);
  EXPECT_EQ(status_of(Opcode::write, {2, 4}), NvmeStatus::invalid_field);
  EXPECT_EQ(status_of(Opcode::write, {2, 2}), NvmeStatus::success);
}

}  // namespace
}  // namespace hippogriff::ondemand
