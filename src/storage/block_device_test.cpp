// Raw block devices as files: both queues, two block sizes, on a loop device where one can be made.
#include "storage/drives.hpp"
#include "testing/loop_device.hpp"
#include "testing/storage_fixture.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace hippogriff {
namespace {

// No multiple of a page, where blocks are smaller.
constexpr std::uint64_t size_bytes = (std::uint64_t{4} << 20) + 4096;
constexpr std::uint64_t odd_size_bytes = (std::uint64_t{4} << 20) + 512;

class BlockDevice : public ::testing::TestWithParam<std::tuple<QueueKind, std::uint32_t>> {
 protected:
  void SetUp() override {
    if (!loop_.obstacle().empty()) {
      GTEST_SKIP() << "no loop device: " << loop_.obstacle();
    }
    if (queue_kind_ == QueueKind::io_uring && storage_->queue_kind() != "io_uring") {
      GTEST_SKIP() << storage_->queue_kind();
    }
    file_ = storage_->open(loop_.path(), FileAccess::read_write);
  }

  void drop_cache() const {
    file_->sync();
    ASSERT_EQ(::posix_fadvise(file_->fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
  }

  const QueueKind queue_kind_ = std::get<0>(GetParam());
  const std::uint32_t block_bytes_ = std::get<1>(GetParam());
  const std::uint64_t size_ = block_bytes_ == 512 ? odd_size_bytes : size_bytes;
  LoopDevice loop_{size_, block_bytes_};
  std::shared_ptr<Storage> storage_ = make_system_storage(queue_kind_);
  std::shared_ptr<File> file_;
};

TEST_P(BlockDevice, facts_are_those_of_the_device) {
  const FileFacts& facts = file_->facts();
  EXPECT_TRUE(facts.is_block_device);
  EXPECT_EQ(facts.filesystem, "block");
  EXPECT_EQ("/dev/" + facts.drive, loop_.path());
  EXPECT_EQ(facts.size, size_);
  EXPECT_EQ(file_->size_now(), size_);
  EXPECT_TRUE(facts.direct) << facts.why_not_direct;
  EXPECT_EQ(facts.direct_alignment, block_bytes_);
}

TEST_P(BlockDevice, its_path_is_told_of_as_the_device_and_not_as_a_file_in_dev) {
  const PathFacts facts = path_facts(loop_.path());
  EXPECT_EQ(facts.filesystem, "block");
  EXPECT_EQ(facts.size_bytes, size_);
  EXPECT_EQ(facts.free_bytes, 0U);
  ASSERT_TRUE(facts.drive.has_value());
  EXPECT_EQ("/dev/" + facts.drive->name, loop_.path());
}

TEST_P(BlockDevice, what_is_written_by_blocks_is_read_by_blocks_to_the_last) {
  AlignedMemory memory(size_);
  const auto bytes = pattern(0, size_);
  std::memcpy(memory.bytes().data(), bytes.data(), bytes.size());
  const auto queue = storage_->create_queue(2);
  const std::uint64_t half = 2 << 20;
  const std::array<Range, 2> parts = {Range{0, half}, Range{half, size_ - half}};
  for (const IoRequest::Kind kind : {IoRequest::Kind::write, IoRequest::Kind::read}) {
    for (const Range part : parts) {
      queue->submit({.kind = kind,
                     .file = file_.get(),
                     .offset = part.offset,
                     .memory = memory.bytes().subspan(part.offset, part.size),
                     .tag = part.size,
                     .buffer = memory.bytes()});
    }
    for (std::size_t count = 0; count < parts.size(); ++count) {
      const IoCompletion completion = reap_one(*queue);
      EXPECT_EQ(completion.result, static_cast<std::int64_t>(completion.tag));
    }
    EXPECT_TRUE(is_pattern(memory.bytes(), 0));
    std::memset(memory.bytes().data(), 0, size_);
  }
}

TEST_P(BlockDevice, a_read_past_the_end_is_short_and_a_write_fails) {
  AlignedMemory memory(8192);
  const auto queue = storage_->create_queue(1);
  queue->submit({.file = file_.get(), .offset = size_ - block_bytes_, .memory = memory.bytes()});
  EXPECT_EQ(reap_one(*queue).result, block_bytes_);
  queue->submit({.kind = IoRequest::Kind::write,
                 .file = file_.get(),
                 .direct = false,
                 .offset = size_,
                 .memory = memory.bytes()});
  EXPECT_EQ(reap_one(*queue).result, -ENOSPC);
  EXPECT_EQ(failure_of([&] { file_->allocate({size_ - 1, 2}); }).errno_value, ENOSPC);
  file_->allocate({0, size_});
}

TEST_P(BlockDevice, unaligned_bytes_go_through_the_page_cache_which_is_seen) {
  const auto bytes = pattern(777, 100001);
  EXPECT_EQ(file_->write(bytes, 777), bytes.size());
  const auto cached = file_->residency({0, 131072});
  ASSERT_TRUE(cached.has_value());
  EXPECT_GE(cached->resident_bytes, 100001U);
  drop_cache();
  const auto dropped = file_->residency({0, 131072});
  ASSERT_TRUE(dropped.has_value());
  EXPECT_EQ(dropped->resident_bytes, 0U);
  std::vector<std::byte> back(bytes.size());
  EXPECT_EQ(read_all(*file_, back, 777), back.size());
  EXPECT_TRUE(is_pattern(back, 777));
  const auto mapping = file_->map({0, 131072}, FileAccess::read_write);
  EXPECT_TRUE(is_pattern(mapping.subspan(777, bytes.size()), 777));
  file_->unmap(mapping);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<QueueKind, std::uint32_t>>& info) {
  const bool threads = std::get<0>(info.param) == QueueKind::threads;
  return std::string(threads ? "threads" : "io_uring") + "_blocks_of_" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(System,
                         BlockDevice,
                         ::testing::Combine(::testing::Values(QueueKind::io_uring,
                                                              QueueKind::threads),
                                            ::testing::Values(512U, 4096U)),
                         name_of);

}  // namespace
}  // namespace hippogriff
