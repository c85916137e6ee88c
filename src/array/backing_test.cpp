// Several files as one array: where bytes are, sizes that do not fit, files that fail.
#include "array/backing.hpp"

#include "testing/array_fixture.hpp"

#include <hippogriff/array.hpp>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t line = 512;

void make_file(const std::string& path, std::uint64_t size) {
  std::ofstream(path) << "";
  std::filesystem::resize_file(path, size);
}

TEST(FileLayout, every_byte_has_a_place_of_its_own_and_files_have_no_holes) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 50; ++round) {
    const FileLayout layout{1 + random() % 5, 1 + random() % 9, random() % 4};
    const std::uint64_t size = 1 + random() % 200;
    std::vector<std::uint64_t> next(layout.file_count, layout.file_offset);
    for (std::uint64_t at = 0; at < size; ++at) {
      const std::uint64_t file = layout.file_of(at, 0);
      ASSERT_EQ(layout.offset_in_file(at), next.at(file)++) << "byte " << at;
      if (at + 1 < size && layout.together_from(at) > 1) {
        ASSERT_EQ(layout.file_of(at + 1, 0), file);
      }
    }
    for (std::uint64_t file = 0; file < layout.file_count; ++file) {
      ASSERT_EQ(layout.bytes_in(size, file), next[file] - layout.file_offset);
    }
  }
}

class OpenBacking : public ::testing::Test {
 protected:
  Backing open(const std::vector<std::uint64_t>& sizes, BackingRequest request) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      request.paths.push_back(folder_.file("part" + std::to_string(i)));
      make_file(request.paths.back(), sizes[i]);
    }
    return open_backing(*storage_, request);
  }

  Failure refusal(const std::vector<std::uint64_t>& sizes, const BackingRequest& request) {
    return failure_of([&] { static_cast<void>(open(sizes, request)); });
  }

  // In bytes, what a file takes on its drive.
  std::uint64_t blocks_of(const std::string& name) const {
    struct ::stat facts = {};
    EXPECT_EQ(::stat(folder_.file(name).c_str(), &facts), 0);
    return static_cast<std::uint64_t>(facts.st_blocks) * 512;
  }

  TemporaryFolder folder_;
  std::shared_ptr<Storage> storage_ = make_system_storage();
};

TEST_F(OpenBacking, an_array_ends_with_the_first_stripe_that_is_not_whole) {
  EXPECT_EQ(open({3000, 2048, 2048}, {.stripe_bytes = 1024}).size_bytes, 1024U * 6 + 952);
  EXPECT_EQ(open({2048, 1500}, {.stripe_bytes = 1024}).size_bytes, 3548U);
  EXPECT_EQ(open({100, 0}, {.stripe_bytes = 1024}).size_bytes, 100U);
  EXPECT_EQ(open({3000}, {.file_offset = 500, .stripe_bytes = 1024}).size_bytes, 2500U);
  EXPECT_EQ(open({5000, 5000}, {.size_bytes = 4000}).size_bytes, 4000U);
}

TEST_F(OpenBacking, files_that_are_too_short_or_too_long_are_named) {
  const auto named = [&](const Failure& failure, const char* part) {
    EXPECT_EQ(failure.status, Status::invalid_argument);
    EXPECT_NE(failure.message().find(folder_.file(part)), std::string::npos) << failure.message();
  };
  named(refusal({3000, 3000}, {.stripe_bytes = 1024}), "part1");
  named(refusal({3000, 2999}, {}), "part0");
  named(refusal({3000, 2047}, {.size_bytes = 4097, .stripe_bytes = 1024}), "part1");
  named(refusal({3000, 3000}, {.file_offset = 3001, .stripe_bytes = 1024}), "part0");
  EXPECT_EQ(open({3000, 3000}, {.size_bytes = 4096, .stripe_bytes = 1024}).size_bytes, 4096U);
}

TEST_F(OpenBacking, a_file_that_is_given_twice_is_refused_before_it_is_cut) {
  make_file(folder_.file("one"), 5000);
  std::filesystem::create_symlink(folder_.file("one"), folder_.file("other"));
  const BackingRequest request{.paths = {folder_.file("one"), folder_.file("other")},
                               .mode = "w+",
                               .size_bytes = 100,
                               .stripe_bytes = 1024};
  EXPECT_EQ(failure_of([&] { static_cast<void>(open_backing(*storage_, request)); }).status,
            Status::invalid_argument);
  EXPECT_EQ(std::filesystem::file_size(folder_.file("one")), 5000U);
}

TEST_F(OpenBacking, new_files_are_as_long_as_their_stripes) {
  const BackingRequest request{.paths = {folder_.file("a"), folder_.file("b"), folder_.file("c")},
                               .mode = "w+",
                               .file_offset = 10,
                               .size_bytes = 5000,
                               .stripe_bytes = 1024};
  make_file(folder_.file("b"), 9000);
  const Backing backing = open_backing(*storage_, request);
  EXPECT_EQ(backing.size_bytes, 5000U);
  EXPECT_EQ(std::filesystem::file_size(folder_.file("b")), 9000U) << "until all else is done";
  empty_files(backing);
  EXPECT_EQ(std::filesystem::file_size(folder_.file("a")), 10U + 2048);
  EXPECT_EQ(std::filesystem::file_size(folder_.file("b")), 10U + 1024 + 904);
  EXPECT_EQ(std::filesystem::file_size(folder_.file("c")), 10U + 1024);
}

TEST_F(OpenBacking, blocks_are_had_for_files_as_long_as_they_are_and_no_longer) {
  constexpr std::uint64_t size = std::uint64_t{1} << 20;
  const Backing backing = open_backing(*storage_,
                                       {.paths = {folder_.file("a"), folder_.file("b")},  // copies
                                        .mode = "w+",
                                        .size_bytes = size});
  empty_files(backing);
  std::filesystem::resize_file(folder_.file("a"), size / 2);
  EXPECT_FALSE(backing.allocate({0, size}, size));
  EXPECT_EQ(std::filesystem::file_size(folder_.file("a")), size / 2) << "it would look whole";
  EXPECT_EQ(std::filesystem::file_size(folder_.file("b")), size);
}

TEST_F(OpenBacking, blocks_are_had_only_where_there_is_room_for_all_of_the_array) {
  constexpr std::uint64_t part = std::uint64_t{1} << 20;
  const std::uint64_t room = std::filesystem::space(folder_.file("")).available;
  const Backing backing = open_backing(*storage_,
                                       {.paths = {folder_.file("a"), folder_.file("b")},  // copies
                                        .mode = "w+",
                                        .size_bytes = 4 * part});
  empty_files(backing);
  EXPECT_FALSE(backing.allocate({0, part}, room * 3 / 4));
  EXPECT_EQ(blocks_of("a"), 0U) << "two copies need more than there is";
  EXPECT_TRUE(backing.allocate({0, part}, 4 * part));
  EXPECT_GE(blocks_of("a"), part);
  EXPECT_GE(blocks_of("b"), part);
}

TEST_F(OpenBacking, blocks_of_stripes_are_had_at_once_for_each_file) {
  constexpr std::uint64_t part = std::uint64_t{1} << 20;
  const auto plan = std::make_shared<FaultPlan>();
  const auto storage = make_faulty_storage(make_system_storage(), plan);
  const Backing backing = open_backing(*storage,
                                       {.paths = {folder_.file("a"), folder_.file("b")},
                                        .mode = "w+",
                                        .file_offset = 4096,
                                        .size_bytes = 4 * part,
                                        .stripe_bytes = 4096});
  empty_files(backing);
  EXPECT_TRUE(backing.allocate({part + 100, part}, 4 * part));
  EXPECT_EQ(plan->seen(FaultPoint::allocate), 2U);
  EXPECT_GE(blocks_of("a") + blocks_of("b"), part);
  EXPECT_LT(blocks_of("a") + blocks_of("b"), part + std::uint64_t{5} * 4096);
}

TEST_F(OpenBacking, new_files_that_cannot_all_be_made_leave_those_that_are_there) {
  make_file(folder_.file("a"), 9000);
  const BackingRequest request{
      .paths = {folder_.file("a"), folder_.file("b"), folder_.file("none/c")},
      .mode = "w+",
      .size_bytes = 5000};
  EXPECT_EQ(failure_of([&] { static_cast<void>(open_backing(*storage_, request)); }).errno_value,
            ENOENT);
  EXPECT_EQ(std::filesystem::file_size(folder_.file("a")), 9000U);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("b")));
}

TEST_F(OpenBacking, a_file_that_cannot_be_as_long_stays_as_it_is) {
  make_file(folder_.file("a"), 9000);
  make_file(folder_.file("b"), 9000);
  const auto plan = std::make_shared<FaultPlan>();
  const auto storage = make_faulty_storage(make_system_storage(), plan);
  const Backing backing = open_backing(
      *storage,
      {.paths = {folder_.file("a"), folder_.file("b")}, .mode = "w+", .size_bytes = 20'000});
  plan->add(
      {.point = FaultPoint::truncate, .kind = FaultKind::error, .after = 1, .errno_value = EFBIG});
  EXPECT_EQ(failure_of([&] { empty_files(backing); }).errno_value, EFBIG);
  EXPECT_EQ(std::filesystem::file_size(folder_.file("a")), 9000U);
  EXPECT_EQ(std::filesystem::file_size(folder_.file("b")), 9000U);
}

TEST(StripedArray, a_failure_names_the_file_of_the_stripe_and_the_offset_there) {
  TestArray array({.file_offset = 100, .files = 3, .stripe_bytes = 2 * line});
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 1});
  std::uint8_t value = 0;
  // Stripe 7 is the third one of file 1; the second line of it.
  EXPECT_EQ(array.view<std::uint8_t>().read(15 * line + 5, value), NvmeStatus::unrecovered_read);
  const Failure failure = failure_of([&] { array.array().check(); });
  EXPECT_EQ(failure.object, array.path(1));
  EXPECT_EQ(failure.offset, 100 + 5 * line);
  EXPECT_EQ(failure.errno_value, EIO);
}

TEST(StripedArray, a_file_that_was_cut_is_named) {
  TestArray array({.files = 2, .stripe_bytes = line});
  std::filesystem::resize_file(array.path(1), 0);
  std::uint8_t value = 0;
  EXPECT_EQ(array.view<std::uint8_t>().read(0, value), NvmeStatus::success);
  EXPECT_EQ(array.view<std::uint8_t>().read(line, value), NvmeStatus::unrecovered_read);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).object, array.path(1));
}

TEST(StripedArray, a_flush_asks_every_file_to_keep_its_part) {
  TestArray array({.files = 3, .stripe_bytes = line});
  array.array().flush();
  EXPECT_EQ(array.plan().seen(FaultPoint::sync), 3U);
  array.plan().add({.point = FaultPoint::sync, .kind = FaultKind::error, .errno_value = EDQUOT});
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).errno_value, EDQUOT);
  EXPECT_EQ(array.plan().seen(FaultPoint::sync), 6U) << "those behind it as well";
}

TEST(StripedArray, stripes_are_whole_lines) {
  EXPECT_EQ(failure_of([] { TestArray array({.files = 2, .stripe_bytes = 700}); }).status,
            Status::invalid_argument);
}

TEST(ReplicatedArray, a_read_that_fails_goes_on_with_another_copy) {
  TestArray array({.files = 3});
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 2});
  std::uint8_t value = 0;
  EXPECT_EQ(array.view<std::uint8_t>().read(5000, value), NvmeStatus::success);
  EXPECT_EQ(static_cast<std::byte>(value), pattern_at(5000));
  EXPECT_EQ(array.array().served().other_copies, 2U);
  EXPECT_EQ(array.array().served().failures, 0U);
  array.array().check();
}

TEST(ReplicatedArray, a_copy_that_failed_is_asked_no_more_while_there_are_others) {
  TestArray array({.files = 3});
  std::filesystem::resize_file(array.path(1), 100);
  std::uint8_t value = 0;
  for (std::uint64_t i = 0; i < array.array().size_bytes(); i += line) {
    ASSERT_EQ(array.view<std::uint8_t>().read(i, value), NvmeStatus::success);
    ASSERT_EQ(static_cast<std::byte>(value), pattern_at(i));
  }
  EXPECT_EQ(array.array().served().other_copies, 1U);
  EXPECT_TRUE(array.array().copy_failed(1));
  EXPECT_FALSE(array.array().copy_failed(0));
}

TEST(ReplicatedArray, a_read_that_fails_on_every_copy_is_a_failure) {
  TestArray array({.files = 3});
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 3});
  std::uint8_t value = 0;
  EXPECT_EQ(array.view<std::uint8_t>().read(0, value), NvmeStatus::unrecovered_read);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).errno_value, EIO);
  EXPECT_EQ(array.array().served().other_copies, 2U);
}

TEST(ReplicatedArray, reads_are_spread_over_the_copies) {
  TestArray array({.files = 2});
  std::ofstream(array.path(1)) << std::string(array.array().size_bytes(), 'x');
  int of_second = 0;
  for (std::uint64_t i = 0; i < array.array().size_bytes(); i += line) {
    of_second += array.view<char>()[i] == 'x' ? 1 : 0;
  }
  EXPECT_GT(of_second, 32);
  EXPECT_LT(of_second, 96);
}

TEST(ReplicatedArray, a_write_that_fails_on_one_copy_is_told_and_made_again) {
  TestArray array({.files = 2});
  const auto view = array.view<std::uint32_t>();
  ASSERT_EQ(view.write(40, 7), NvmeStatus::success);
  array.plan().add({.point = FaultPoint::queued_write,
                    .kind = FaultKind::error,
                    .after = 1,
                    .errno_value = ENOSPC});
  const Failure failure = failure_of([&] { array.array().flush(); });
  EXPECT_EQ(failure.errno_value, ENOSPC);
  EXPECT_EQ(failure.object, array.path(1));
  EXPECT_NE(array.stored(0), array.stored(1));
  array.array().clear_failure();
  array.array().flush();
  EXPECT_EQ(array.stored(0), array.stored(1));
}

TEST(ReplicatedArray, a_copy_that_lost_its_end_is_not_written_and_a_flush_says_so) {
  for (const bool is_read_first : {false, true}) {
    TestArray array({.files = 3});
    const auto view = array.view<std::uint32_t>();
    const std::uint64_t last = view.size() - 1;
    std::filesystem::resize_file(array.path(1), 1000);
    for (std::uint64_t i = 0; is_read_first && i < view.size(); i += line / 4) {
      static_cast<void>(view[i]);
    }
    ASSERT_EQ(view.write(last, 7), NvmeStatus::success);
    const Failure failure = failure_of([&] { array.array().flush(); });
    EXPECT_EQ(failure.status, Status::short_file);
    EXPECT_EQ(failure.object, array.path(1));
    EXPECT_EQ(std::filesystem::file_size(array.path(1)), 1000U);
    EXPECT_EQ(array.stored(0), array.stored(2));
    EXPECT_EQ(array.stored(0)[4 * last], std::byte{7}) << "the others have it";
    EXPECT_TRUE(array.array().copy_failed(1));
    array.array().clear_failure();
    array.array().flush();
    ASSERT_EQ(view.write(last, 8), NvmeStatus::success);
    EXPECT_EQ(failure_of([&] { array.array().flush(); }).object, array.path(1)) << "again";
  }
}

// Lines that are written as a whole are not read first, and would put the end back, behind a hole.
TEST(Backing, a_file_that_lost_its_end_is_not_made_long_again) {
  for (const std::uint32_t files : {1U, 2U}) {
    TestArray array({.files = files, .stripe_bytes = files == 1 ? 0 : line});
    const auto view = array.view<std::uint32_t>();
    const std::string path = array.path(files - 1);
    std::filesystem::resize_file(path, 1000);
    const std::vector<std::uint32_t> whole(line / 4, 7);
    const std::uint64_t first = view.size() - whole.size();
    ASSERT_EQ(view.write_range(Alone{}, first, whole.size(), whole.data()), NvmeStatus::success);
    const Failure failure = failure_of([&] { array.array().flush(); });
    EXPECT_EQ(failure.status, Status::short_file);
    EXPECT_EQ(failure.object, path);
    EXPECT_EQ(std::filesystem::file_size(path), 1000U);
  }
}

TEST(ReplicatedArray, a_copy_that_was_left_out_is_not_read_when_the_others_fail) {
  TestArray array({.files = 2});
  const auto view = array.view<std::uint32_t>();
  std::filesystem::resize_file(array.path(1), array.array().size_bytes() / 2);
  ASSERT_EQ(view.write(0, 7), NvmeStatus::success);
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).object, array.path(1));
  array.array().clear_failure();
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 1});
  std::uint32_t value = 0;
  EXPECT_EQ(view.read(line, value), NvmeStatus::unrecovered_read);
  EXPECT_EQ(array.array().served().other_copies, 0U);
}

TEST(ReplicatedArray, a_line_that_no_copy_has_room_for_stays) {
  TestArray array({.files = 2});
  const auto view = array.view<std::uint32_t>();
  ASSERT_EQ(view.write(0, 7), NvmeStatus::success);
  std::filesystem::resize_file(array.path(0), 1000);
  std::filesystem::resize_file(array.path(1), 1000);
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).status, Status::short_file);
  EXPECT_EQ(view[0], 7U);
  EXPECT_NE(array.stored(0)[0], std::byte{7});
}

TEST(ReplicatedArray, writes_that_come_in_pieces_reach_every_copy_whole) {
  TestArray array({.files = 3});
  array.plan().randomize({.seed = 8, .try_again = 0.1, .shorten = 0.3});
  const auto view = array.view<std::uint32_t>();
  for (std::uint32_t i = 0; i < view.size(); ++i) {
    ASSERT_EQ(view.write(i, i), NvmeStatus::success);
  }
  array.array().flush();
  EXPECT_NE(array.stored()[4], pattern_at(4));
  EXPECT_EQ(array.stored(0), array.stored(1));
  EXPECT_EQ(array.stored(0), array.stored(2));
}

TEST(SeveralFiles, are_one_array_for_programs) {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> paths{folder.file("a"), folder.file("b")};
  constexpr std::uint64_t count = 3000;
  {
    array<std::uint32_t> made(
        paths, {.mode = "w+", .device = "host", .count = count, .stripe_size = 4096});
    for (std::uint32_t i = 0; i < count; ++i) {
      made.view().write(i, i);
    }
    made.flush();
  }
  EXPECT_EQ(std::filesystem::file_size(paths[0]), 7904U);
  EXPECT_EQ(std::filesystem::file_size(paths[1]), 4096U);
  const array<std::uint32_t> opened(paths, {.device = "host", .stripe_size = 4096});
  ASSERT_EQ(opened.size(), count);
  EXPECT_EQ(opened.view()[2999], 2999U);
  const auto status = [&](const array_options& options) {
    try {
      const array<std::uint32_t> refused(paths, options);
    } catch (const TransferError& error) {
      return error.status();
    }
    return HIPPOGRIFF_OK;
  };
  EXPECT_EQ(status({.device = "host"}), HIPPOGRIFF_INVALID_ARGUMENT) << "which layout?";
  EXPECT_EQ(status({.device = "host", .layout = "raid5"}), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(status({.device = "host", .layout = "replicated", .stripe_size = 4096}),
            HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(status({.device = "host", .layout = "replicated"}), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(status({.device = "host", .count = 900, .layout = "replicated"}), HIPPOGRIFF_OK);
}

}  // namespace
}  // namespace hippogriff::ondemand
