// Pages that are there, that come into being, and that are gone.
#include "storage/mapped_write.hpp"

#include "testing/temporary_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t mapped_bytes = 64 * page;

class MappedWriteTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_write_into_mappings()) {
      GTEST_SKIP() << "this system does not let a process write to itself";
    }
    fd_ = ::open(folder_.file("file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd_, 0);
    ASSERT_EQ(::ftruncate(fd_, mapped_bytes), 0);
    void* memory = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    ASSERT_NE(memory, MAP_FAILED);
    mapping_ = {static_cast<std::byte*>(memory), mapped_bytes};
    for (std::size_t index = 0; index < data_.size(); ++index) {
      data_[index] = static_cast<std::byte>(index * 7 + index / page);
    }
  }

  void TearDown() override {
    if (fd_ >= 0) {
      ::munmap(mapping_.data(), mapping_.size());
      ::close(fd_);
    }
  }

  std::vector<std::byte> contents(std::size_t offset, std::size_t size) const {
    std::vector<std::byte> bytes(size);
    EXPECT_EQ(::pread(fd_, bytes.data(), size, static_cast<off_t>(offset)),
              static_cast<ssize_t>(size));
    return bytes;
  }

  TemporaryFolder folder_;
  int fd_ = -1;
  std::span<std::byte> mapping_;
  std::vector<std::byte> data_ = std::vector<std::byte>(mapped_bytes);
};

TEST_F(MappedWriteTest, all_bytes_get_there_from_any_offset) {
  const std::size_t offset = 3 * page + 17;
  const std::size_t size = 40 * page + 5;
  ASSERT_EQ(write_into_mapping(mapping_.subspan(offset, size), data_.data()), size);
  EXPECT_EQ(contents(offset, size), std::vector<std::byte>(data_.begin(), data_.begin() + size));
  EXPECT_EQ(contents(0, offset), std::vector<std::byte>(offset));
}

TEST_F(MappedWriteTest, truncated_file_ends_the_write_where_its_pages_end) {
  ASSERT_EQ(::ftruncate(fd_, 20 * page), 0);
  EXPECT_EQ(write_into_mapping(mapping_, data_.data()), 20 * page);
  EXPECT_EQ(contents(0, 20 * page),
            std::vector<std::byte>(data_.begin(), data_.begin() + 20 * page));
  EXPECT_EQ(write_into_mapping(mapping_.subspan(30 * page), data_.data()), 0U);
}

TEST_F(MappedWriteTest, mapping_that_may_only_be_read_takes_nothing) {
  ASSERT_EQ(::mprotect(mapping_.data(), mapping_.size(), PROT_READ), 0);
  EXPECT_EQ(write_into_mapping(mapping_, data_.data()), 0U);
  EXPECT_EQ(contents(0, page), std::vector<std::byte>(page));
}

}  // namespace
}  // namespace hippogriff
