// Arrays on a CUDA device, over the fake driver, whose memory CPU threads reach: they stand in for
// the GPU's. Nobody wakes the controller, and data goes through registered memory or staging
// memory.
#include "array/storage_array.hpp"
#include "device/cuda_device.hpp"
#include "node/node.hpp"
#include "testing/eventually.hpp"
#include "testing/fake_cuda/fake_cuda.hpp"
#include "testing/node_segment.hpp"
#include "testing/storage_fixture.hpp"
#include "testing/temporary_folder.hpp"

#include <hippogriff/array/view.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t size_bytes = 40'000;

class CudaArrayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto fake = testing::FakeCuda::of_this_process();
    ASSERT_TRUE(fake.has_value()) << "HIPPOGRIFF_CUDA_DRIVER must name the fake driver";
    fake->reset();
    options_.device = make_cuda_device(0);
    options_.controller = std::make_shared<Controller>(make_system_storage(), 2);
    options_.cache_bytes = 16 * std::uint64_t{512};
    options_.line_bytes = 512;
    options_.queue_count = 3;
    options_.queue_depth = 16;
  }

  void TearDown() override {
    options_ = {};
    const auto fake = testing::FakeCuda::of_this_process();
    for (const char* what : {"streams", "allocations", "registrations", "contexts"}) {
      EXPECT_EQ(fake->count(what), 0) << what << " leaked";
    }
  }

  // Pattern in a file, from an offset on.
  void stand_on_file(std::uint64_t offset, FileAccess access) {
    const auto bytes = pattern(0, offset + size_bytes);
    std::ofstream(folder_.file("array"), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    options_.backing.files = {
        {make_system_storage()->open(folder_.file("array"), access), folder_.file("array")}};
    options_.backing.file_offset = offset;
    options_.backing.size_bytes = size_bytes;
    options_.backing.writable = access != FileAccess::read;
    options_.backing.name = folder_.file("array");
  }

  // Eight threads read every byte.
  std::uint64_t wrong_bytes(StorageArray& array, std::uint64_t offset) {
    const array_view<std::byte> view(array.cache(), size_bytes);
    std::atomic<std::uint64_t> wrong{0};
    std::vector<std::jthread> threads;
    for (std::uint64_t thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint64_t i = thread; i < size_bytes; i += 97) {
          wrong += view[i] == pattern_at(offset + i) ? 0 : 1;
        }
      });
    }
    threads.clear();
    return wrong.load();
  }

  TemporaryFolder folder_;
  StorageArrayOptions options_;
};

TEST_F(CudaArrayTest, a_file_in_the_page_cache_is_copied_until_its_pages_are_registered) {
  stand_on_file(0, FileAccess::read);
  StorageArray array(options_);
  const auto& windows = array.backing().windows;
  ASSERT_NE(windows, nullptr);
  EXPECT_TRUE(testing::eventually([&] {
    EXPECT_EQ(wrong_bytes(array, 0), 0U);
    return windows->in_place_bytes() == size_bytes;
  }));
  EXPECT_EQ(wrong_bytes(array, 0), 0U);
  array.check();
  EXPECT_GT(array.counts().misses, 0U);
}

// Threads of the host stand in for the library's kernels here, which do not count, and for others.
TEST_F(CudaArrayTest, hits_are_known_unless_a_kernel_has_the_view_that_does_not_count) {
  const testing::TemporarySegment place;
  const node::Node mine(place.options());
  node::Node other(place.options());
  const auto shown = [&] { return other.view().arrays.at(0).counts; };
  stand_on_file(0, FileAccess::read);
  options_.notice = mine.notice_array();
  {
    StorageArray array(options_);
    array.note_asked(5);
    EXPECT_TRUE(testing::eventually([&] { return shown().accesses == 5; }));
    EXPECT_TRUE(shown().counts_accesses);
    EXPECT_EQ(array.counts().hits(), 5U);
    array.note_view();
    EXPECT_TRUE(testing::eventually([&] { return !shown().counts_accesses; }));
    EXPECT_FALSE(array.counts().is_counted);
    EXPECT_EQ(array.counts().hits(), 0U);
    for (const std::uint32_t multiprocessor : {0U, 63U, 0U}) {
      count_sample(array.cache().accesses[multiprocessor]);
    }
    EXPECT_TRUE(testing::eventually([&] { return shown().counts_accesses; }));
    EXPECT_EQ(shown().accesses, 5 + 3 * access_sample);
    EXPECT_EQ(array.counts().hits(), 5 + 3 * access_sample);
  }
  options_.notice.reset();
}

// Of two threads of a multiprocessor the one that counted first may store what is shown last.
TEST_F(CudaArrayTest, accesses_that_are_shown_do_not_step_back) {
  const testing::TemporarySegment place;
  const node::Node mine(place.options());
  node::Node other(place.options());
  const auto seen = [&] { return other.view().arrays.at(0); };
  stand_on_file(0, FileAccess::read);
  options_.notice = mine.notice_array();
  {
    StorageArray array(options_);
    constexpr std::uint64_t twice = std::uint64_t{2} * access_sample;
    AccessCount& count = array.cache().accesses[7];
    count_sample(count);
    count_sample(count);
    EXPECT_TRUE(testing::eventually([&] { return seen().counts.accesses == twice; }));
    system_ref<std::uint64_t>(*count.shown).store(access_sample, relaxed);
    for (int look = 0; look < 2; ++look) {  // the first may have been under way
      const auto before = seen().counted_ns;
      EXPECT_TRUE(testing::eventually([&] { return seen().counted_ns > before; }));
    }
    EXPECT_EQ(seen().counts.accesses, twice);
  }
  options_.notice.reset();
}

TEST_F(CudaArrayTest, a_file_that_cannot_be_registered_goes_through_staging_memory) {
  stand_on_file(100, FileAccess::read);
  StorageArray array(options_);
  EXPECT_EQ(wrong_bytes(array, 100), 0U);
  array.check();
}

TEST_F(CudaArrayTest,
       what_threads_of_the_device_wrote_is_in_the_file_after_the_two_halves_of_a_flush) {
  stand_on_file(0, FileAccess::read_write);
  StorageArray array(options_);
  const array_view<std::byte> view(array.cache(), size_bytes);
  for (std::uint64_t i = 0; i < size_bytes; ++i) {
    ASSERT_EQ(view.write(i, pattern_at(i + 5)), NvmeStatus::success);
  }
  for (std::uint32_t place = 0; place < array.cache().places.place_count(); ++place) {
    ASSERT_EQ(array.cache().flush_places(Alone{}, place), NvmeStatus::success);
  }
  array.sync();
  std::vector<std::byte> there(size_bytes);
  std::ifstream(folder_.file("array"), std::ios::binary)
      .read(reinterpret_cast<char*>(there.data()), static_cast<std::streamsize>(size_bytes));
  EXPECT_TRUE(is_pattern(there, 5));
  EXPECT_EQ(failure_of([&] { array.flush(); }).status, Status::unsupported);
}

TEST_F(CudaArrayTest, memory_is_read_where_it_is_when_its_pages_can_be_registered) {
  AlignedMemory memory(size_bytes);
  const auto bytes = pattern(0, size_bytes);
  std::ranges::copy(bytes, memory.bytes().begin());
  options_.backing = {.memory = memory.bytes(), .size_bytes = size_bytes, .name = "memory"};
  {
    StorageArray array(options_);
    EXPECT_EQ(wrong_bytes(array, 0), 0U);
  }
  options_.backing.memory = memory.bytes().subspan(8);
  options_.backing.size_bytes = size_bytes - 8;
  StorageArray array(options_);
  const array_view<std::byte> view(array.cache(), size_bytes - 8);
  EXPECT_EQ(view[size_bytes - 9], pattern_at(size_bytes - 1)) << "not page-aligned: staged";
}

}  // namespace
}  // namespace hippogriff::ondemand
