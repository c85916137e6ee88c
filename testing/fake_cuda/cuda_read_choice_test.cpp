// Rows that a GPU's stream reads past the cache by themselves, over the fake driver: where that is
// chosen, that they are right, and that what cannot be set up goes through the cache.
#include "array/read_choice.hpp"
#include "device/cuda_device.hpp"
#include "testing/fake_cuda/fake_cuda.hpp"
#include "testing/storage_fixture.hpp"
#include "testing/temporary_folder.hpp"

#include <hippogriff/array.hpp>

#include <cuda.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::uint64_t size_bytes = std::uint64_t{3} << 20;
constexpr std::uint64_t row_bytes = 512;

class CudaReadChoiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_ = testing::FakeCuda::of_this_process();
    ASSERT_TRUE(fake_.has_value()) << "HIPPOGRIFF_CUDA_DRIVER must name the fake driver";
    fake_->reset();
    std::ranges::copy(pattern(0, size_bytes), memory_.bytes().begin());
    std::ofstream(folder_.file("array"), std::ios::binary)
        .write(reinterpret_cast<const char*>(memory_.bytes().data()), size_bytes);
  }

  void TearDown() override {
    array_.reset();
    memories_.clear();
    fake_->reset();
    for (; starts_ != 0; --starts_) {
      EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK);
    }
    for (const char* what : {"streams", "allocations", "registrations", "contexts"}) {
      EXPECT_EQ(fake_->count(what), 0) << what << " leaked";
    }
  }

  static array_options small_cache() {
    return {.device = "cuda:0", .cache_size = 64 << 10, .line_size = 512};
  }

  void open_memory(const array_options& options, std::size_t skipped = 0) {
    array_.reset();
    ++starts_;
    array_ = std::make_unique<array<std::byte>>(memory_.bytes().subspan(skipped), options);
  }

  std::byte* device_memory(std::size_t size) {
    void* memory = nullptr;
    EXPECT_EQ(hippogriff_malloc("cuda:0", size, &memory), HIPPOGRIFF_OK);
    memories_.emplace_back(memory, &hippogriff_free);
    return static_cast<std::byte*>(memory);
  }

  // Gathers the rows and compares them; `wide` is a row's length.
  void expect_rows(std::uint64_t wide = row_bytes, std::uint64_t offset = 0) {
    std::byte* numbers = device_memory(rows_.size() * 8);
    std::memcpy(numbers, rows_.data(), rows_.size() * 8);
    std::byte* memory = device_memory(rows_.size() * wide);
    const hippogriff_device_rows rows{.struct_size = sizeof(hippogriff_device_rows),
                                      .numbers = reinterpret_cast<std::uint64_t>(numbers),
                                      .memory = reinterpret_cast<std::uint64_t>(memory),
                                      .count = rows_.size(),
                                      .row_size = wide,
                                      .number_size = 8};
    ASSERT_EQ(hippogriff_array_gather_async(array_->get(), &rows), HIPPOGRIFF_OK);
    ASSERT_EQ(hippogriff_array_wait(array_->get()), HIPPOGRIFF_OK);
    std::uint64_t size = 0;
    ASSERT_EQ(hippogriff_array_size(array_->get(), &size), HIPPOGRIFF_OK);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const bool there = rows_[i] < size / wide;
      for (std::size_t byte = 0; byte < wide; ++byte) {
        ASSERT_EQ(memory[i * wide + byte],
                  there ? pattern_at(offset + rows_[i] * wide + byte) : std::byte{0});
      }
    }
  }

  [[nodiscard]] nlohmann::json explained() const {
    char* json = nullptr;
    EXPECT_EQ(hippogriff_array_explain(array_->get(), &json), HIPPOGRIFF_OK);
    auto told = nlohmann::json::parse(json);
    hippogriff_free_string(json);
    return told;
  }

  void expect_through_the_cache(const std::string& why, std::uint64_t offset = 0) {
    expect_rows(row_bytes, offset);
    EXPECT_EQ(array_->statistics().zero_copy_bytes, 0U);
    EXPECT_GT(array_->statistics().misses, 0U);
    EXPECT_EQ(explained().at("zero_copy"), false);
    EXPECT_EQ(explained().at("zero_copy_reason"), why);
  }

  std::vector<std::uint64_t> rows_{3, 6143, 3, 17, 6144};  // the last is out of range
  TemporaryFolder folder_;
  AlignedMemory memory_{size_bytes};
  std::optional<testing::FakeCuda> fake_;
  int starts_ = 0;
  std::unique_ptr<array<std::byte>> array_;
  std::vector<std::unique_ptr<void, int (*)(void*)>> memories_;
};

TEST_F(CudaReadChoiceTest, rows_of_memory_are_read_past_a_cache_of_little_of_it) {
  open_memory(small_cache());
  expect_rows();
  EXPECT_EQ(array_->statistics().zero_copy_bytes, rows_.size() * row_bytes);
  EXPECT_EQ(array_->statistics().misses, 0U);
  EXPECT_EQ(hippogriff_array_check(array_->get()), HIPPOGRIFF_INVALID_ARGUMENT) << "row 6,144";
  const auto told = explained();
  EXPECT_EQ(told.at("zero_copy"), true);
  EXPECT_LT(told.at("zero_copy_seconds").get<double>(), told.at("cache_seconds").get<double>());
  memory_.bytes()[3 * row_bytes] = std::byte{0};
  std::byte byte{1};
  ASSERT_EQ(hippogriff_array_read(array_->get(), 17 * row_bytes, &byte, 1), HIPPOGRIFF_OK);
  EXPECT_EQ(byte, pattern_at(17 * row_bytes)) << "what goes through the cache is as right";
  EXPECT_EQ(array_->statistics().misses, 1U);
}

TEST_F(CudaReadChoiceTest, rows_that_are_asked_for_again_come_through_the_cache) {
  open_memory(small_cache());
  for (int gather = 0; gather < 60; ++gather) {
    expect_rows();
  }
  EXPECT_EQ(array_->statistics().zero_copy_bytes, rows_.size() * row_bytes) << "the first ones";
  EXPECT_EQ(array_->statistics().misses, 3U);
  const auto told = explained();
  EXPECT_EQ(told.at("zero_copy"), false);
  EXPECT_GT(told.at("hits_seen").get<double>(), 0.9);
  EXPECT_EQ(
      told.at("zero_copy_reason"),
      "about 99 % of the lines that rows asked for lately were in the cache, which is quicker from "
      "21 % on");
}

TEST_F(CudaReadChoiceTest, rows_that_are_not_asked_for_again_are_read_past_it) {
  open_memory(small_cache());
  for (std::uint64_t gather = 0; gather < 200; ++gather) {
    for (std::uint64_t i = 0; i < rows_.size(); ++i) {
      rows_[i] = rows_.size() * gather + i;
    }
    expect_rows();
  }
  std::vector<std::byte> row(row_bytes);
  const std::uint64_t number = 0;
  ASSERT_EQ(hippogriff_array_gather(array_->get(), &number, 1, row_bytes, row.data()),
            HIPPOGRIFF_OK);
  const std::uint64_t before = array_->statistics().zero_copy_bytes;
  expect_rows();
  EXPECT_GT(array_->statistics().zero_copy_bytes, before) << "the host asked for nothing ahead";
  const auto told = explained();
  EXPECT_EQ(told.at("zero_copy"), true);
  EXPECT_EQ(told.at("hits_seen"), 0.0);
  EXPECT_GT(array_->statistics().zero_copy_bytes, 130 * rows_.size() * row_bytes);
}

TEST_F(CudaReadChoiceTest, rows_that_were_asked_for_ahead_come_through_the_cache) {
  open_memory(small_cache());
  const std::uint64_t first = 0;
  ASSERT_EQ(hippogriff_array_prefetch(array_->get(), first, 64 * row_bytes), HIPPOGRIFF_OK);
  expect_rows();
  const std::array<std::uint64_t, 2> numbers{3, 17};
  ASSERT_EQ(
      hippogriff_array_prefetch_rows(array_->get(), numbers.data(), numbers.size(), row_bytes),
      HIPPOGRIFF_OK);
  expect_rows();
  EXPECT_EQ(array_->statistics().zero_copy_bytes, 0U);
}

TEST_F(CudaReadChoiceTest, rows_of_other_than_sixteens_of_bytes_go_through_the_cache) {
  open_memory(small_cache());
  expect_rows(100);
  EXPECT_EQ(array_->statistics().zero_copy_bytes, 0U);
  EXPECT_GT(array_->statistics().misses, 0U);
}

TEST_F(CudaReadChoiceTest, what_is_written_or_asked_for_or_cannot_be_goes_through_the_cache) {
  array_options options = small_cache();
  options.mode = "r+";
  open_memory(options);
  expect_through_the_cache("what is written to the array is in the cache first");
  options = small_cache();
  options.load = "none";
  open_memory(options);
  expect_through_the_cache("the cache was asked for by load");
  options = small_cache();
  options.cache_size = size_bytes / 2;
  open_memory(options);
  expect_rows();
  EXPECT_EQ(explained().at("zero_copy"), false) << "many of its lines are found";
}

TEST_F(CudaReadChoiceTest, memory_that_is_not_registered_goes_through_the_cache) {
  constexpr std::size_t skipped = 8;  // it begins at no page
  open_memory(small_cache(), skipped);
  expect_through_the_cache("it is not whole in host memory that the device can read", skipped);
}

TEST_F(CudaReadChoiceTest, of_a_file_the_way_that_is_predicted_to_be_faster_is_taken) {
  ++starts_;
  array_ = std::make_unique<array<std::byte>>(folder_.file("array"), small_cache());
  expect_rows();
  const auto told = explained();
  const bool past =
      told.contains("zero_copy_seconds") && told.at("zero_copy_seconds") < told.at("cache_seconds");
  EXPECT_EQ(told.at("zero_copy"), past) << "by the machine's processors";
  EXPECT_EQ(array_->statistics().zero_copy_bytes != 0, past);
}

TEST_F(CudaReadChoiceTest, of_a_file_that_was_cut_nothing_is_read_past_the_cache) {
  ++starts_;
  array_ = std::make_unique<array<std::byte>>(folder_.file("array"), small_cache());
  if (explained().at("zero_copy") == false) {
    GTEST_SKIP() << "many processors copy lines sooner: " << explained().at("zero_copy_reason");
  }
  expect_rows();
  const std::uint64_t before = array_->statistics().zero_copy_bytes;
  EXPECT_GT(before, 0U);
  std::filesystem::resize_file(folder_.file("array"), size_bytes - row_bytes);
  std::byte* number = device_memory(8);
  std::memset(number, 0, 8);
  const hippogriff_device_rows first{
      .struct_size = sizeof(hippogriff_device_rows),
      .numbers = reinterpret_cast<std::uint64_t>(number),
      .memory = reinterpret_cast<std::uint64_t>(device_memory(row_bytes)),
      .count = 1,
      .row_size = row_bytes,
      .number_size = 8};
  EXPECT_EQ(hippogriff_array_gather_async(array_->get(), &first), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_array_wait(array_->get()), HIPPOGRIFF_OK);
  EXPECT_EQ(array_->statistics().zero_copy_bytes, before);
}

// A file by one thread that copies, whatever machine this is.
class CudaReadChoiceOfFileTest : public CudaReadChoiceTest {
 protected:
  std::unique_ptr<ondemand::StorageArray> opened(const char* why = nullptr) {
    ondemand::StorageArrayOptions options;
    options.device = make_cuda_device(0);
    options.controller = std::make_shared<ondemand::Controller>(make_system_storage(), 1);
    options.cache_bytes = 64 << 10;
    options.line_bytes = 512;
    options.backing.files = {{make_system_storage()->open(folder_.file("array"), FileAccess::read),
                              folder_.file("array")}};
    options.backing.size_bytes = size_bytes;
    options.backing.name = folder_.file("array");
    auto array = std::make_unique<ondemand::StorageArray>(options);
    if (why != nullptr) {
      fake_->fail("cuMemHostRegister", 0, CUDA_ERROR_OUT_OF_MEMORY);
    }
    ondemand::choose_reads_at_opening(*array, ondemand::LoadKind::automatic, 1);
    EXPECT_EQ(array->row_reads().past == nullptr, why != nullptr) << array->row_reads().why;
    if (why != nullptr) {
      EXPECT_EQ(array->row_reads().why, why);
    }
    return array;
  }
};

TEST_F(CudaReadChoiceOfFileTest, all_of_it_is_in_place_where_zero_copy_was_chosen) {
  const auto array = opened();
  EXPECT_EQ(array->backing().windows->in_place_bytes(), size_bytes);
  EXPECT_TRUE(std::equal(memory_.bytes().begin(), memory_.bytes().end(), array->row_reads().past));
}

TEST_F(CudaReadChoiceOfFileTest, what_cannot_be_registered_goes_through_the_cache) {
  const auto array = opened("its pages could not be registered");
  EXPECT_EQ(array->backing().windows->in_place_bytes(), 0U);
  array->check();
}

}  // namespace
}  // namespace hippogriff
