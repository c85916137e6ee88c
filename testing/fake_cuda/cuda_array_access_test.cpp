// The C functions of arrays on a GPU, over the fake driver, which runs the library's kernels on the
// thread of a stream.
#include "testing/eventually.hpp"
#include "testing/fake_cuda/fake_cuda.hpp"
#include "testing/storage_fixture.hpp"
#include "testing/temporary_folder.hpp"

#include <hippogriff/array.hpp>

#include <cuda.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::uint64_t size_bytes = 3'000'000;
constexpr std::uint64_t row_bytes = 100;

class CudaArrayAccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_ = testing::FakeCuda::of_this_process();
    ASSERT_TRUE(fake_.has_value()) << "HIPPOGRIFF_CUDA_DRIVER must name the fake driver";
    fake_->reset();
    expected_ = pattern(0, size_bytes);
    std::ofstream(folder_.file("array"), std::ios::binary)
        .write(reinterpret_cast<const char*>(expected_.data()), size_bytes);
    open("r+");
  }

  void TearDown() override {
    array_.reset();
    memories_.clear();
    fake_->reset();
    for (; starts_ != 0; --starts_) {
      EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK);
    }
    for (const char* what : {"streams", "allocations", "registrations", "modules"}) {
      EXPECT_EQ(fake_->count(what), 0) << what << " leaked";
    }
  }

  void open(const char* mode, std::uint64_t offset = 0) {
    array_.reset();
    ++starts_;  // every array of C++ starts the runtime
    array_ = std::make_unique<array<std::byte>>(folder_.file("array"),
                                                array_options{.mode = mode,
                                                              .device = "cuda:0",
                                                              .cache_size = 64 << 10,
                                                              .line_size = 512,
                                                              .offset = offset});
  }

  // Memory of the fake GPU, in which tests may look; some is left to the next test.
  template <typename T>
  T* device_memory(std::size_t count) {
    void* memory = nullptr;
    EXPECT_EQ(hippogriff_malloc("cuda:0", count * sizeof(T), &memory), HIPPOGRIFF_OK);
    memories_.emplace_back(memory, &hippogriff_free);
    return static_cast<T*>(memory);
  }

  template <typename T>
  hippogriff_device_rows rows_of(const std::vector<T>& numbers, std::byte** memory) {
    T* there = device_memory<T>(numbers.size());
    std::ranges::copy(numbers, there);
    *memory = device_memory<std::byte>(numbers.size() * row_bytes);
    return {.struct_size = sizeof(hippogriff_device_rows),
            .numbers = reinterpret_cast<std::uint64_t>(there),
            .memory = reinterpret_cast<std::uint64_t>(*memory),
            .count = numbers.size(),
            .row_size = row_bytes,
            .number_size = sizeof(T),
            .number_signed = std::is_signed_v<T> ? 1U : 0U};
  }

  [[nodiscard]] bool is_row(const std::byte* memory, std::uint64_t row) const {
    return std::equal(memory, memory + row_bytes, expected_.begin() + offset_of(row));
  }

  [[nodiscard]] static std::ptrdiff_t offset_of(std::uint64_t row) {
    return static_cast<std::ptrdiff_t>(row * row_bytes);
  }

  [[nodiscard]] std::vector<std::byte> in_file() const {
    std::vector<std::byte> bytes(size_bytes);
    std::ifstream(folder_.file("array"), std::ios::binary)
        .read(reinterpret_cast<char*>(bytes.data()), size_bytes);
    return bytes;
  }

  TemporaryFolder folder_;
  std::optional<testing::FakeCuda> fake_;
  std::vector<std::byte> expected_;
  int starts_ = 0;
  std::unique_ptr<array<std::byte>> array_;
  std::vector<std::unique_ptr<void, int (*)(void*)>> memories_;
};

TEST_F(CudaArrayAccessTest, what_was_loaded_when_it_was_opened_is_read_and_written_in_the_cache) {
  array_.reset();
  ++starts_;
  array_ = std::make_unique<array<std::byte>>(folder_.file("array"),
                                              array_options{.mode = "r+",
                                                            .device = "cuda:0",
                                                            .cache_size = 4 << 20,
                                                            .line_size = 512,
                                                            .load = "all"});
  EXPECT_EQ(array_->statistics().loaded_bytes, size_bytes);
  std::vector<std::byte> found(size_bytes);
  ASSERT_EQ(hippogriff_array_read(array_->get(), 0, found.data(), size_bytes), HIPPOGRIFF_OK);
  EXPECT_EQ(found, expected_);
  EXPECT_EQ(array_->statistics().misses, 0U);
  const std::vector<std::byte> other = pattern(7, 1000);
  ASSERT_EQ(hippogriff_array_write(array_->get(), 5000, other.data(), other.size()), HIPPOGRIFF_OK);
  array_->flush();
  std::ranges::copy(other, expected_.begin() + 5000);
  std::ifstream(folder_.file("array"), std::ios::binary)
      .read(reinterpret_cast<char*>(found.data()), size_bytes);
  EXPECT_EQ(found, expected_);
}

TEST_F(CudaArrayAccessTest,
       host_memory_is_read_and_written_in_pieces_and_is_in_the_file_when_flushed) {
  std::vector<std::byte> bytes(size_bytes);
  ASSERT_EQ(hippogriff_array_read(array_->get(), 0, bytes.data(), size_bytes), HIPPOGRIFF_OK);
  EXPECT_EQ(bytes, expected_);
  const auto fresh = pattern(7, 2'500'001);
  ASSERT_EQ(hippogriff_array_write(array_->get(), 333, fresh.data(), fresh.size()), HIPPOGRIFF_OK);
  array_->flush();
  std::ranges::copy(fresh, expected_.begin() + 333);
  EXPECT_EQ(in_file(), expected_);
  EXPECT_GT(array_->statistics().misses, size_bytes / 512);
}

TEST_F(CudaArrayAccessTest, of_equal_rows_from_host_memory_the_last_one_stays) {
  const std::vector<std::uint64_t> numbers{5, 29'999, 5, 7, 5};
  std::vector<std::byte> rows(numbers.size() * row_bytes);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<std::byte>(i / row_bytes + 1);
  }
  ASSERT_EQ(hippogriff_array_scatter(
                array_->get(), numbers.data(), numbers.size(), row_bytes, rows.data()),
            HIPPOGRIFF_OK);
  for (const auto& [row, value] :
       std::vector<std::pair<std::uint64_t, std::uint8_t>>{{5, 5}, {29'999, 2}, {7, 4}}) {
    std::fill_n(expected_.begin() + offset_of(row), row_bytes, static_cast<std::byte>(value));
  }
  std::vector<std::byte> found(rows.size());
  ASSERT_EQ(hippogriff_array_gather(
                array_->get(), numbers.data(), numbers.size(), row_bytes, found.data()),
            HIPPOGRIFF_OK);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_TRUE(is_row(&found[i * row_bytes], numbers[i])) << i;
  }
  array_->flush();
  EXPECT_EQ(in_file(), expected_);
}

TEST_F(CudaArrayAccessTest, rows_longer_than_the_exchange_are_moved_piece_by_piece) {
  constexpr std::uint64_t long_row = 1'500'000;
  const std::uint64_t second = 1;
  std::vector<std::byte> found(long_row);
  ASSERT_EQ(hippogriff_array_gather(array_->get(), &second, 1, long_row, found.data()),
            HIPPOGRIFF_OK);
  EXPECT_TRUE(is_pattern(found, long_row));
}

TEST_F(CudaArrayAccessTest, rows_are_gathered_on_a_stream_and_what_is_out_of_range_is_zeros) {
  std::byte* memory = nullptr;
  const std::vector<std::int32_t> numbers{3, -1, 29'999, 30'000, -30'000, -30'001, 0};
  const hippogriff_device_rows rows = rows_of(numbers, &memory);
  std::fill_n(memory, numbers.size() * row_bytes, std::byte{0xEE});
  ASSERT_EQ(hippogriff_array_gather_async(array_->get(), &rows), HIPPOGRIFF_OK);
  ASSERT_EQ(hippogriff_array_wait(array_->get()), HIPPOGRIFF_OK);
  for (const auto& [place, row] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 3}, {1, 29'999}, {2, 29'999}, {4, 0}, {6, 0}}) {
    EXPECT_TRUE(is_row(memory + offset_of(place), row)) << place;
  }
  for (const std::uint64_t place : {3U, 5U}) {
    EXPECT_TRUE(std::all_of(memory + offset_of(place),
                            memory + offset_of(place + 1),
                            [](std::byte byte) { return byte == std::byte{0}; }))
        << place;
  }
  EXPECT_EQ(hippogriff_array_check(array_->get()), HIPPOGRIFF_INVALID_ARGUMENT);
  array_->clear_failure();
  EXPECT_EQ(hippogriff_array_check(array_->get()), HIPPOGRIFF_OK);
}

TEST_F(CudaArrayAccessTest, rows_are_scattered_on_a_stream_before_a_flush_that_follows) {
  std::byte* memory = nullptr;
  const std::vector<std::uint64_t> numbers{9, 11'111, 29'999};
  const hippogriff_device_rows rows = rows_of(numbers, &memory);
  std::fill_n(memory, numbers.size() * row_bytes, std::byte{0x5A});
  ASSERT_EQ(hippogriff_array_scatter_async(array_->get(), &rows), HIPPOGRIFF_OK);
  array_->flush();
  for (const std::uint64_t row : numbers) {
    std::fill_n(expected_.begin() + offset_of(row), row_bytes, std::byte{0x5A});
  }
  EXPECT_EQ(in_file(), expected_);
}

TEST_F(CudaArrayAccessTest, what_the_host_asks_for_ahead_is_there_when_it_is_read) {
  const std::vector<std::uint64_t> numbers{3, 29'999, 3, 12'345};
  ASSERT_EQ(hippogriff_array_prefetch(array_->get(), 1'000'000, 5000), HIPPOGRIFF_OK);
  ASSERT_EQ(
      hippogriff_array_prefetch_rows(array_->get(), numbers.data(), numbers.size(), row_bytes),
      HIPPOGRIFF_OK);
  constexpr std::uint64_t lines = 10 + 1 + 1 + 1;
  EXPECT_TRUE(testing::eventually([&] { return array_->statistics().misses == lines; }));
  std::vector<std::byte> found(5000);
  ASSERT_EQ(hippogriff_array_read(array_->get(), 1'000'000, found.data(), 5000), HIPPOGRIFF_OK);
  EXPECT_TRUE(is_pattern(found, 1'000'000));
  found.resize(numbers.size() * row_bytes);
  ASSERT_EQ(hippogriff_array_gather(
                array_->get(), numbers.data(), numbers.size(), row_bytes, found.data()),
            HIPPOGRIFF_OK);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_TRUE(is_row(&found[i * row_bytes], numbers[i])) << i;
  }
  EXPECT_EQ(array_->statistics().misses, lines);
  EXPECT_EQ(hippogriff_array_prefetch(array_->get(), size_bytes, 1), HIPPOGRIFF_INVALID_ARGUMENT);
  const std::uint64_t beyond = size_bytes / row_bytes;
  EXPECT_EQ(hippogriff_array_prefetch_rows(array_->get(), &beyond, 1, row_bytes),
            HIPPOGRIFF_INVALID_ARGUMENT);
  ASSERT_EQ(hippogriff_array_prefetch(array_->get(), 0, size_bytes), HIPPOGRIFF_OK);
  array_->flush();
  EXPECT_LE(array_->statistics().misses, lines + (64 << 10) / 512 / 2);
}

TEST_F(CudaArrayAccessTest, rows_asked_for_ahead_on_a_stream_are_there_when_they_are_gathered) {
  std::byte* memory = nullptr;
  const std::vector<std::int32_t> numbers{3, -1, 29'999, 30'000, 20};
  hippogriff_device_rows rows = rows_of(numbers, &memory);
  rows.memory = 0;
  ASSERT_EQ(hippogriff_array_prefetch_async(array_->get(), &rows), HIPPOGRIFF_OK);
  ASSERT_EQ(hippogriff_array_wait(array_->get()), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_array_check(array_->get()), HIPPOGRIFF_INVALID_ARGUMENT) << "row 30,000";
  array_->clear_failure();
  const std::uint64_t misses = array_->statistics().misses;
  EXPECT_EQ(misses, 4U) << "row 20 lies in two lines";
  rows.memory = reinterpret_cast<std::uint64_t>(memory);
  ASSERT_EQ(hippogriff_array_gather_async(array_->get(), &rows), HIPPOGRIFF_OK);
  ASSERT_EQ(hippogriff_array_wait(array_->get()), HIPPOGRIFF_OK);
  EXPECT_TRUE(is_row(memory + offset_of(4), 20));
  EXPECT_EQ(array_->statistics().misses, misses);
  array_->clear_failure();
  rows.numbers += 1;
  EXPECT_EQ(hippogriff_array_prefetch_async(array_->get(), &rows), HIPPOGRIFF_INVALID_ARGUMENT);
  rows.numbers = reinterpret_cast<std::uint64_t>(numbers.data());
  EXPECT_EQ(hippogriff_array_prefetch_async(array_->get(), &rows), HIPPOGRIFF_INVALID_ARGUMENT);
  rows.count = 0;
  EXPECT_EQ(hippogriff_array_prefetch_async(array_->get(), &rows), HIPPOGRIFF_OK);
}

TEST_F(CudaArrayAccessTest, a_driver_that_fails_as_it_is_asked_ahead_is_told_and_nothing_stays) {
  const std::uint64_t row = 5;
  fake_->fail("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(hippogriff_array_prefetch(array_->get(), 0, 1), HIPPOGRIFF_DEVICE_ERROR);
  fake_->fail("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(hippogriff_array_prefetch_rows(array_->get(), &row, 1, row_bytes),
            HIPPOGRIFF_DEVICE_ERROR);
  EXPECT_EQ(hippogriff_array_prefetch_rows(array_->get(), &row, 1, row_bytes), HIPPOGRIFF_OK);
}

TEST_F(CudaArrayAccessTest, rows_are_read_past_the_cache_where_pages_are_registered) {
  std::byte* memory = nullptr;
  const std::vector<std::int64_t> numbers{3, -1, 30'000, 12'345};
  const hippogriff_device_rows rows = rows_of(numbers, &memory);
  std::fill_n(memory, numbers.size() * row_bytes, std::byte{0xEE});
  ASSERT_EQ(hippogriff_array_zero_copy_async(array_->get(), &rows), HIPPOGRIFF_OK);
  ASSERT_EQ(hippogriff_array_wait(array_->get()), HIPPOGRIFF_OK);
  EXPECT_TRUE(is_row(memory, 3));
  EXPECT_TRUE(is_row(memory + offset_of(1), 29'999));
  EXPECT_EQ(memory[offset_of(2)], std::byte{0}) << "row 30,000";
  EXPECT_TRUE(is_row(memory + offset_of(3), 12'345));
  EXPECT_EQ(hippogriff_array_check(array_->get()), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(array_->statistics().misses, 0U);
  open("r", 100);  // of which pages cannot be registered
  EXPECT_EQ(hippogriff_array_zero_copy_async(array_->get(), &rows), HIPPOGRIFF_UNSUPPORTED);
  EXPECT_EQ(hippogriff_array_zero_copy_async(array_->get(), nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  const array<std::byte> near(folder_.file("array"), {.device = "host"});
  ++starts_;
  EXPECT_EQ(hippogriff_array_zero_copy_async(near.get(), &rows), HIPPOGRIFF_UNSUPPORTED);
}

TEST_F(CudaArrayAccessTest, what_is_asked_for_late_is_dropped_and_closing_waits_for_the_rest) {
  for (std::uint64_t turn = 0; turn < 500; ++turn) {
    ASSERT_EQ(hippogriff_array_prefetch(array_->get(), 512 * turn, 512), HIPPOGRIFF_OK);
  }
  std::byte byte{};
  EXPECT_EQ(hippogriff_array_read(array_->get(), 512, &byte, 1), HIPPOGRIFF_OK);
  EXPECT_EQ(byte, pattern_at(512));
}

TEST_F(CudaArrayAccessTest, closing_waits_for_rows_that_are_queued) {
  std::byte* memory = nullptr;
  const std::vector<std::int64_t> numbers(2000, 12'345);
  const hippogriff_device_rows rows = rows_of(numbers, &memory);
  ASSERT_EQ(hippogriff_array_gather_async(array_->get(), &rows), HIPPOGRIFF_OK);
  array_.reset();
  EXPECT_TRUE(is_row(memory + offset_of(1999), 12'345));
}

TEST_F(CudaArrayAccessTest, a_flush_comes_after_the_streams_that_were_named) {
  std::byte* memory = nullptr;
  auto* const create = fake_->exported<decltype(cuStreamCreate)>("cuStreamCreate");
  auto* const destroy = fake_->exported<decltype(cuStreamDestroy)>("cuStreamDestroy_v2");
  auto* const launch = fake_->exported<decltype(cuLaunchHostFunc)>("cuLaunchHostFunc");
  auto* const retain =
      fake_->exported<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  auto* const release =
      fake_->exported<decltype(cuDevicePrimaryCtxRelease)>("cuDevicePrimaryCtxRelease_v2");
  auto* const set = fake_->exported<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent");
  CUcontext context = nullptr;
  ASSERT_EQ(retain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(set(context), CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  hippogriff_device_rows rows = rows_of(std::vector<std::uint64_t>{8}, &memory);
  rows.stream = stream;
  std::fill_n(memory, row_bytes, std::byte{0});
  const CUhostFn fill = [](void* bytes) {
    std::fill_n(static_cast<std::byte*>(bytes), row_bytes, std::byte{0x77});
  };
  ASSERT_EQ(launch(stream, fill, memory), CUDA_SUCCESS);
  ASSERT_EQ(hippogriff_array_scatter_async(array_->get(), &rows), HIPPOGRIFF_OK);
  ASSERT_EQ(hippogriff_array_after(array_->get(), stream), HIPPOGRIFF_OK);
  array_->flush();
  EXPECT_EQ(in_file()[800], std::byte{0x77});

  fake_->set_capturing(stream, true);
  EXPECT_EQ(hippogriff_array_scatter_async(array_->get(), &rows), HIPPOGRIFF_UNSUPPORTED);
  EXPECT_EQ(hippogriff_array_after(array_->get(), stream), HIPPOGRIFF_UNSUPPORTED);
  fake_->set_capturing(stream, false);
  array_.reset();
  EXPECT_EQ(destroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(set(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(release(0), CUDA_SUCCESS);
}

TEST_F(CudaArrayAccessTest, rows_that_cannot_be_are_refused) {
  std::byte* memory = nullptr;
  const hippogriff_device_rows good = rows_of(std::vector<std::int64_t>{1, 2}, &memory);
  std::vector<std::uint64_t> on_the_host{1, 2};
  const auto refused = [&](const std::function<void(hippogriff_device_rows&)>& spoil) {
    hippogriff_device_rows rows = good;
    spoil(rows);
    return hippogriff_array_gather_async(array_->get(), &rows);
  };
  using Rows = hippogriff_device_rows;
  const auto host = reinterpret_cast<std::uint64_t>(on_the_host.data());
  EXPECT_EQ(refused([](Rows&) {}), HIPPOGRIFF_OK);
  EXPECT_EQ(refused([](Rows& rows) { rows.count = 0; }), HIPPOGRIFF_OK);
  for (const std::function<void(Rows&)>& spoil : std::vector<std::function<void(Rows&)>>{
           [](Rows& rows) { rows.struct_size = 1; },
           [](Rows& rows) { rows.number_size = 2; },
           [](Rows& rows) { rows.row_size = 0; },
           [](Rows& rows) { rows.row_size = size_bytes + 1; },
           [](Rows& rows) { rows.count = 3'000'000; },
           [](Rows& rows) { rows.count = UINT64_MAX; },
           [](Rows& rows) { rows.numbers += 1; },
           [host](Rows& rows) { rows.numbers = host; },
           [host](Rows& rows) { rows.memory = host; },
       }) {
    EXPECT_EQ(refused(spoil), HIPPOGRIFF_INVALID_ARGUMENT);
  }
  EXPECT_EQ(hippogriff_array_gather_async(array_->get(), nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_gather_async(nullptr, &good), HIPPOGRIFF_INVALID_ARGUMENT);
  const array<std::byte> near(folder_.file("array"), {.device = "host"});
  ++starts_;
  EXPECT_EQ(hippogriff_array_gather_async(near.get(), &good), HIPPOGRIFF_UNSUPPORTED);
  open("r");
  EXPECT_EQ(hippogriff_array_scatter_async(array_->get(), &good), HIPPOGRIFF_INVALID_ARGUMENT);
}

TEST_F(CudaArrayAccessTest, the_view_of_an_element_size_is_in_host_memory_and_in_the_devices) {
  std::size_t size = 0;
  std::uint32_t layout = 0;
  const auto view = [&](void* memory, std::size_t element) {
    return hippogriff_array_element_view(array_->get(), element, memory, &size, &layout);
  };
  ASSERT_EQ(view(nullptr, 4), HIPPOGRIFF_OK);
  ASSERT_EQ(size, sizeof(array_view<float>));
  ASSERT_EQ(layout, ondemand::view_layout);
  std::vector<std::byte> bytes(size);
  ASSERT_EQ(view(bytes.data(), sizeof(float)), HIPPOGRIFF_OK);
  array_view<float> floats;
  std::memcpy(static_cast<void*>(&floats), bytes.data(), size);
  EXPECT_EQ(floats.size(), size_bytes / 4);
  EXPECT_EQ(view(bytes.data(), 0), HIPPOGRIFF_INVALID_ARGUMENT);
  size -= 1;
  EXPECT_EQ(view(bytes.data(), 4), HIPPOGRIFF_INVALID_ARGUMENT);
  std::uint64_t address = 0;
  std::uint64_t again = 0;
  ASSERT_EQ(hippogriff_array_view_address(array_->get(), 4, &address), HIPPOGRIFF_OK);
  ASSERT_EQ(hippogriff_array_view_address(array_->get(), 4, &again), HIPPOGRIFF_OK);
  EXPECT_EQ(address, again);
  const auto* there = reinterpret_cast<const std::byte*>(address);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), there));
  EXPECT_EQ(hippogriff_array_view_address(array_->get(), 4, nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_view_address(array_->get(), 0, &again), HIPPOGRIFF_INVALID_ARGUMENT);
}

TEST_F(CudaArrayAccessTest, a_driver_that_cannot_load_or_launch_the_kernels_is_told) {
  std::byte byte{};
  fake_->fail("cuModuleLoadData", 0, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(hippogriff_array_read(array_->get(), 0, &byte, 1), HIPPOGRIFF_UNSUPPORTED);
  fake_->reset();
  fake_->fail("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(hippogriff_array_read(array_->get(), 0, &byte, 1), HIPPOGRIFF_DEVICE_ERROR);
  EXPECT_EQ(hippogriff_array_read(array_->get(), 1, &byte, 1), HIPPOGRIFF_OK);
  EXPECT_EQ(byte, pattern_at(1));
}

TEST_F(CudaArrayAccessTest, a_read_of_a_file_that_was_cut_fails_with_what_happened) {
  std::vector<std::byte> bytes(4096);
  open("r", 100);  // of which pages cannot be registered
  std::filesystem::resize_file(folder_.file("array"), 1'000'000);
  EXPECT_EQ(hippogriff_array_read(array_->get(), 2'000'000, bytes.data(), bytes.size()),
            HIPPOGRIFF_SHORT_FILE);
  std::filesystem::resize_file(folder_.file("array"), size_bytes);
}

TEST_F(CudaArrayAccessTest, metadata_is_at_most_a_fiftieth_of_caches_from_2_MiB_on) {
  std::filesystem::resize_file(folder_.file("array"), std::uint64_t{1} << 30);
  AlignedMemory memory(std::size_t{300} << 20);
  const auto share = [&](std::uint64_t cache_bytes, const char* mode) {
    ++starts_;
    const array_options options{.mode = mode, .device = "cuda:0", .cache_size = cache_bytes};
    const auto opened = mode == nullptr
                            ? std::make_unique<array<std::byte>>(memory.bytes(), options)
                            : std::make_unique<array<std::byte>>(folder_.file("array"), options);
    return static_cast<double>(opened->statistics().metadata_bytes) /
           static_cast<double>(cache_bytes);
  };
  for (const char* mode : {"r", "r+", static_cast<const char*>(nullptr)}) {
    for (const std::uint64_t mib : {2, 3, 5, 8, 31, 32, 63, 64, 127, 128, 256}) {
      EXPECT_LE(share(mib << 20, mode), 0.02) << mib << (mode == nullptr ? "" : mode);
    }
    EXPECT_GT(share(1 << 20, mode), 0.02) << "docs/storage_arrays.md says from where on";
  }
}

}  // namespace
}  // namespace hippogriff
