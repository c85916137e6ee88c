// The part of the storage suite about opening, reading, writing and mapping files.
#pragma once

#include "testing/storage_fixture.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

namespace hippogriff {

class StorageConformance : public ::testing::TestWithParam<StorageFactory> {
 protected:
  void SetUp() override {
    storage = GetParam().make();
    if (storage == nullptr) {
      GTEST_SKIP() << GetParam().name << " does not exist here";
    }
    home = std::make_unique<TemporaryFolder>(GetParam().folder);
  }

  std::shared_ptr<File> patterned(const std::string& name, std::uint64_t size) {
    auto file = storage->create(home->file(name));
    write_all(*file, pattern(0, size), 0);
    return file;
  }

  std::shared_ptr<Storage> storage;
  std::unique_ptr<TemporaryFolder> home;
};

inline std::string storage_factory_name(const ::testing::TestParamInfo<StorageFactory>& info) {
  return info.param.name;
}

TEST_P(StorageConformance, facts_tell_what_was_opened) {
  const auto file = patterned("f", 12345);
  const auto again = storage->open(home->file("f"), FileAccess::read);
  const FileFacts& facts = again->facts();
  EXPECT_EQ(facts.path, home->file("f"));
  EXPECT_EQ(facts.size, 12345U);
  EXPECT_NE(facts.inode, 0U);
  EXPECT_FALSE(facts.filesystem.empty());
  EXPECT_FALSE(facts.is_block_device);
  EXPECT_EQ(facts.direct, again->direct_fd() >= 0);
  EXPECT_EQ(facts.direct, facts.direct_alignment > 0);
  EXPECT_EQ(facts.direct, facts.why_not_direct.empty());
  EXPECT_EQ(again->identity().inode, file->identity().inode);
  EXPECT_EQ(again->identity().size, 12345U);
}

TEST_P(StorageConformance, bytes_come_back_at_any_offset_and_size) {
  const auto file = patterned("f", 3 << 20);
  for (const std::size_t size : {1UL, 2UL, 511UL, 4096UL, 4097UL, 65535UL, (1UL << 20) + 1}) {
    for (const std::uint64_t offset : {0UL, 1UL, 511UL, 4095UL, 4096UL, 1048577UL}) {
      std::vector<std::byte> bytes(size);
      ASSERT_EQ(read_all(*file, bytes, offset), size) << offset;
      ASSERT_TRUE(is_pattern(bytes, offset)) << size << " bytes at " << offset;
    }
  }
}

TEST_P(StorageConformance, read_past_the_end_returns_a_short_count_then_nothing) {
  const auto file = patterned("f", 1000);
  std::vector<std::byte> bytes(4096);
  EXPECT_EQ(file->read(bytes, 900), 100U);
  EXPECT_EQ(file->read(bytes, 1000), 0U);
  EXPECT_EQ(file->read(bytes, 1ULL << 40), 0U);
  EXPECT_EQ(file->read({}, 0), 0U);
}

TEST_P(StorageConformance, an_empty_file_reads_as_nothing) {
  const auto file = storage->create(home->file("empty"));
  std::vector<std::byte> bytes(10);
  EXPECT_EQ(file->read(bytes, 0), 0U);
  EXPECT_EQ(file->read_cached(bytes, 0), 0U);
  EXPECT_EQ(file->size_now(), 0U);
  EXPECT_EQ(file->residency({0, 100}).value_or(Residency{1, 1}).total_bytes, 0U);
}

TEST_P(StorageConformance, offsets_beyond_the_largest_are_refused_as_overflow) {
  const auto file = patterned("f", 10);
  std::vector<std::byte> bytes(10);
  EXPECT_EQ(failure_of([&] { static_cast<void>(file->read(bytes, UINT64_MAX)); }).errno_value,
            EOVERFLOW);
  EXPECT_EQ(failure_of([&] { static_cast<void>(file->write(bytes, INT64_MAX - 5)); }).errno_value,
            EOVERFLOW);
}

TEST_P(StorageConformance, sparse_files_work_beyond_4_gib) {
  const auto file = storage->create(home->file("sparse"));
  const std::uint64_t offset = (5ULL << 30) + 123;
  write_all(*file, pattern(offset, 10000), offset);
  EXPECT_EQ(file->size_now(), offset + 10000);
  std::vector<std::byte> bytes(10100);
  ASSERT_EQ(read_all(*file, bytes, offset - 100), 10100U);
  EXPECT_EQ(bytes[0], std::byte{0});
  EXPECT_EQ(bytes[99], std::byte{0});
  EXPECT_TRUE(is_pattern(std::span(bytes).subspan(100), offset));
}

TEST_P(StorageConformance, a_write_only_file_is_not_read) {
  patterned("f", 100);
  const auto file = storage->open(home->file("f"), FileAccess::write);
  std::vector<std::byte> bytes(10);
  const Failure failure = failure_of([&] { static_cast<void>(file->read(bytes, 3)); });
  EXPECT_EQ(failure.status, Status::io_error);
  EXPECT_EQ(failure.errno_value, EBADF);
  EXPECT_EQ(failure.operation, "read");
  EXPECT_EQ(failure.object, home->file("f"));
  EXPECT_EQ(failure.offset, 3U);
}

TEST_P(StorageConformance, opening_nothing_is_an_io_error_with_its_errno) {
  const Failure failure =
      failure_of([&] { static_cast<void>(storage->open(home->file("none"), FileAccess::read)); });
  EXPECT_EQ(failure.status, Status::io_error);
  EXPECT_EQ(failure.errno_value, ENOENT);
  EXPECT_EQ(failure.object, home->file("none"));
}

TEST_P(StorageConformance, what_is_not_a_file_is_refused) {
  const std::string pipe = home->file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path :
       {home->path().string(), pipe, std::string("/dev/null"), std::string()}) {
    for (const FileAccess access : {FileAccess::read, FileAccess::write, FileAccess::read_write}) {
      const Failure failure = failure_of([&] { static_cast<void>(storage->open(path, access)); });
      EXPECT_EQ(failure.status, Status::invalid_argument) << path << failure.message();
    }
  }
}

TEST_P(StorageConformance, descriptors_that_cannot_serve_are_refused) {
  patterned("f", 100);
  const std::string path = home->file("f");
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int folder = ::open(home->path().c_str(), O_RDONLY | O_CLOEXEC);
  const int write_only = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const int path_only = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  const int closed = ::dup(path_only);
  ::close(closed);
  for (const int fd : {-1, closed, ends[0], socket, folder, write_only, path_only}) {
    const Failure failure =
        failure_of([&] { static_cast<void>(storage->adopt(fd, FileAccess::read)); });
    EXPECT_EQ(failure.status, Status::invalid_argument) << fd << failure.message();
  }
  const int append = ::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  EXPECT_EQ(
      failure_of([&] { static_cast<void>(storage->adopt(append, FileAccess::write)); }).status,
      Status::invalid_argument);
  EXPECT_EQ(storage->adopt(append, FileAccess::read)->size_now(), 100U);
  for (const int fd : {ends[0], ends[1], socket, folder, write_only, path_only, append}) {
    ::close(fd);
  }
}

TEST_P(StorageConformance, an_adopted_descriptor_may_be_closed_and_its_file_deleted) {
  patterned("f", 5000);
  const int fd = ::open(home->file("f").c_str(), O_RDONLY | O_CLOEXEC);
  const auto file = storage->adopt(fd, FileAccess::read);
  ::close(fd);
  ASSERT_EQ(::unlink(home->file("f").c_str()), 0);
  std::vector<std::byte> bytes(5000);
  EXPECT_EQ(read_all(*file, bytes, 0), 5000U);
  EXPECT_TRUE(is_pattern(bytes, 0));
  EXPECT_EQ(file->facts().path, home->file("f") + " (deleted)");
  EXPECT_EQ(file->facts().direct, file->direct_fd() >= 0);
}

TEST_P(StorageConformance, a_borrowed_descriptor_stays_open) {
  patterned("f", 100);
  const int fd = ::open(home->file("f").c_str(), O_RDWR | O_CLOEXEC);
  std::vector<std::byte> bytes(100);
  {
    const auto file = storage->borrow(fd, FileAccess::read);
    EXPECT_EQ(read_all(*file, bytes, 0), 100U);
  }
  EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
  ::close(fd);
}

TEST_P(StorageConformance, a_descriptor_with_o_direct_serves_unaligned_reads) {
  patterned("f", 10000);
  const int fd = ::open(home->file("f").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) {
    GTEST_SKIP() << "no O_DIRECT here";
  }
  const auto file = storage->adopt(fd, FileAccess::read);
  ::close(fd);
  std::vector<std::byte> bytes(333);
  EXPECT_EQ(read_all(*file, bytes, 777), 333U);
  EXPECT_TRUE(is_pattern(bytes, 777));
}

TEST_P(StorageConformance, a_memory_file_is_served) {
  const int fd = ::memfd_create("hippogriff", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  const auto file = storage->adopt(fd, FileAccess::read_write);
  ::close(fd);
  write_all(*file, pattern(0, 9000), 0);
  std::vector<std::byte> bytes(9000);
  EXPECT_EQ(read_all(*file, bytes, 0), 9000U);
  EXPECT_TRUE(is_pattern(bytes, 0));
  EXPECT_TRUE(file->facts().in_memory);
  EXPECT_FALSE(file->facts().direct);
  EXPECT_FALSE(file->facts().why_not_direct.empty());
}

TEST_P(StorageConformance, create_truncates_what_is_there) {
  patterned("f", 100);
  EXPECT_EQ(storage->create(home->file("f"))->size_now(), 0U);
}

TEST_P(StorageConformance, a_file_truncated_meanwhile_reads_short) {
  const auto file = patterned("f", 100000);
  ASSERT_EQ(::truncate(home->file("f").c_str(), 5000), 0);
  std::vector<std::byte> bytes(100000);
  EXPECT_EQ(read_all(*file, bytes, 0), 5000U);
  EXPECT_EQ(file->size_now(), 5000U);
  EXPECT_LE(file->residency({0, 100000}).value_or(Residency{}).total_bytes, 5000U);
}

TEST_P(StorageConformance, a_file_replaced_meanwhile_is_still_the_old_one) {
  const auto file = patterned("f", 100);
  static_cast<void>(storage->create(home->file("g")));
  storage->rename(home->file("g"), home->file("f"));
  std::vector<std::byte> bytes(100);
  EXPECT_EQ(read_all(*file, bytes, 0), 100U);
  EXPECT_TRUE(is_pattern(bytes, 0));
  EXPECT_FALSE(std::filesystem::exists(home->file("g")));
  EXPECT_EQ(std::filesystem::file_size(home->file("f")), 0U);
}

TEST_P(StorageConformance, allocate_grows_and_never_shrinks) {
  const auto file = patterned("f", 5000);
  file->allocate({0, 100000});
  EXPECT_EQ(file->size_now(), 100000U);
  file->allocate({0, 10});
  EXPECT_EQ(file->size_now(), 100000U);
  // Far out: what lies before it stays a hole.
  file->allocate({std::uint64_t{1} << 40U, 4096});
  EXPECT_EQ(file->size_now(), (std::uint64_t{1} << 40U) + 4096);
  file->truncate(10);
  EXPECT_EQ(file->size_now(), 10U);
  file->sync();
}

TEST_P(StorageConformance, what_was_just_written_is_resident_and_read_from_the_cache) {
  const auto file = patterned("f", (8 << 20) + 5);
  const auto residency = file->residency({5, 8 << 20});
  ASSERT_TRUE(residency.has_value());
  EXPECT_EQ(residency->resident_bytes, 8U << 20);
  EXPECT_EQ(residency->total_bytes, 8U << 20);
  std::vector<std::byte> bytes(100001);
  const auto count = file->read_cached(bytes, 4097);
  ASSERT_TRUE(count.has_value());
  EXPECT_GT(*count, 0U);
  EXPECT_TRUE(is_pattern(std::span(bytes).first(*count), 4097));
  EXPECT_EQ(file->read_cached(bytes, (8 << 20) + 5), 0U);
  EXPECT_EQ(file->read_cached(bytes, (8 << 20) + 2), 3U);
}

TEST_P(StorageConformance, a_mapping_shows_the_file_and_writes_reach_it) {
  const auto file = patterned("f", 3 * 65536 + 17);
  const auto shown = file->map({65536, 65536 + 17}, FileAccess::read);
  EXPECT_EQ(shown.size(), 65536U + 17);
  EXPECT_TRUE(is_pattern(shown, 65536));
  file->unmap(shown);
  const auto writable = file->map({0, 4096}, FileAccess::read_write);
  writable[5] = std::byte{42};
  std::array<std::byte, 1> byte{};
  EXPECT_EQ(file->read(byte, 5), 1U);
  EXPECT_EQ(byte[0], std::byte{42});
  file->unmap(writable);
}

TEST_P(StorageConformance, a_mapping_that_cannot_be_is_an_io_error) {
  patterned("f", 5000);
  const auto file = storage->open(home->file("f"), FileAccess::read);
  EXPECT_EQ(
      failure_of([&] { static_cast<void>(file->map({1, 4096}, FileAccess::read)); }).errno_value,
      EINVAL);
  EXPECT_EQ(failure_of([&] { static_cast<void>(file->map({0, 0}, FileAccess::read)); }).errno_value,
            EINVAL);
  EXPECT_EQ(failure_of([&] {
              static_cast<void>(file->map({0, 4096}, FileAccess::read_write));
            }).errno_value,
            EACCES);
}

TEST_P(StorageConformance, rename_of_nothing_names_both_paths) {
  const Failure failure = failure_of([&] { storage->rename(home->file("a"), home->file("b")); });
  EXPECT_EQ(failure.errno_value, ENOENT);
  EXPECT_NE(failure.message().find(home->file("a")), std::string::npos);
  EXPECT_NE(failure.message().find(home->file("b")), std::string::npos);
}

TEST_P(StorageConformance, remove_of_nothing_does_nothing) {
  patterned("f", 1);
  storage->remove(home->file("f"));
  EXPECT_FALSE(std::filesystem::exists(home->file("f")));
  storage->remove(home->file("f"));
}

TEST_P(StorageConformance, two_threads_share_a_file) {
  const auto file = patterned("f", 1 << 20);
  const auto reopened = storage->open(home->file("f"), FileAccess::read_write);
  const auto work = [&](std::uint64_t begin) {
    for (std::uint64_t offset = begin; offset < (1 << 20); offset += 8192) {
      std::vector<std::byte> bytes(4096);
      EXPECT_EQ(read_all(*reopened, bytes, offset), 4096U);
      EXPECT_TRUE(is_pattern(bytes, offset));
      write_all(*reopened, bytes, offset);
      EXPECT_EQ(reopened->facts().direct, reopened->direct_fd() >= 0);
      EXPECT_TRUE(reopened->residency({offset, 4096}).has_value());
    }
  };
  std::thread other(work, 4096);
  work(0);
  other.join();
}

}  // namespace hippogriff
