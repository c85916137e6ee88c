// What is loaded when an array is opened, and that it is as if it had come line by line.
#include "array/loading.hpp"

#include "testing/failure_of.hpp"
#include "testing/storage_fixture.hpp"
#include "testing/temporary_folder.hpp"

#include <hippogriff/array.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

using ondemand::choose_load;
using ondemand::LoadFacts;
using ondemand::LoadKind;

void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

std::vector<std::byte> read_back(const std::string& path) {
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

template <typename T>
void expect_all(const array<T>& opened, std::span<const std::byte> expected) {
  std::vector<std::byte> found(expected.size());
  ASSERT_EQ(hippogriff_array_read(opened.get(), 0, found.data(), found.size()), HIPPOGRIFF_OK);
  EXPECT_TRUE(std::ranges::equal(found, expected));
}

TEST(Loading, all_is_loaded_where_it_fits_and_takes_no_time_or_is_asked_for) {
  const LoadFacts fits{.fits = true, .predicted = 0.01};
  EXPECT_TRUE(choose_load(fits).loads);
  LoadFacts slow = fits;
  slow.predicted = 3.0;
  EXPECT_FALSE(choose_load(slow).loads);
  EXPECT_NE(choose_load(slow).why.find("about 3 s"), std::string::npos);
  slow.kind = LoadKind::all;
  EXPECT_TRUE(choose_load(slow).loads);
  LoadFacts unknown = fits;
  unknown.predicted.reset();
  EXPECT_FALSE(choose_load(unknown).loads);
  LoadFacts memory = fits;
  memory.in_memory = true;
  EXPECT_FALSE(choose_load(memory).loads);
  LoadFacts fresh = fits;
  fresh.is_new = true;
  for (const LoadKind kind : {LoadKind::automatic, LoadKind::all, LoadKind::none}) {
    fresh.kind = kind;
    EXPECT_FALSE(choose_load(fresh).loads);
  }
  LoadFacts none = fits;
  none.kind = LoadKind::none;
  EXPECT_FALSE(choose_load(none).loads);
  LoadFacts large;
  EXPECT_FALSE(choose_load(large).loads);
  large.kind = LoadKind::all;
  EXPECT_EQ(failure_of([&] { static_cast<void>(choose_load(large)); }).status,
            Status::invalid_argument);
}

TEST(Loading, arrays_of_all_sizes_are_as_their_files_and_none_of_their_lines_is_read) {
  const TemporaryFolder folder;
  const std::string path = folder.file("bytes");
  for (const std::size_t size : {1U, 511U, 512U, 513U, 3584U, 4096U, 4097U, 100'003U}) {
    for (const std::uint64_t offset : {0U, 100U}) {
      const std::vector<std::byte> bytes = pattern(0, offset + size);
      write_bytes(path, bytes);
      // To the line: eight lines are a set.
      const std::uint64_t lines = (size + 511) / 512;
      const array<std::byte> opened(path,
                                    {.device = "host",
                                     .cache_size = (lines <= 8 ? lines : (lines + 7) / 8 * 8) * 512,
                                     .line_size = 512,
                                     .offset = offset,
                                     .load = "all"});
      expect_all(opened, std::span(bytes).subspan(offset));
      EXPECT_EQ(opened.statistics().loaded_bytes, size);
      EXPECT_EQ(opened.statistics().misses, 0U);
      EXPECT_EQ(opened.statistics().reads, 0U);
    }
  }
}

TEST(Loading, what_is_written_to_a_loaded_array_is_flushed_and_nothing_else) {
  const TemporaryFolder folder;
  const std::string path = folder.file("bytes");
  std::vector<std::byte> expected = pattern(0, 50'000);
  write_bytes(path, expected);
  array<std::byte> opened(path, {.mode = "r+", .device = "host", .line_size = 512, .load = "all"});
  opened.flush();
  EXPECT_EQ(opened.statistics().writes, 0U) << "what was loaded is clean";
  for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{777}, std::uint64_t{49'999}}) {
    expected[index] = std::byte{0xA5};
    ASSERT_EQ(opened.view().write(index, std::byte{0xA5}), ondemand::NvmeStatus::success);
  }
  expect_all(opened, expected);
  opened.flush();
  EXPECT_EQ(opened.statistics().writes, 3U);
  EXPECT_EQ(read_back(path), expected);
}

TEST(Loading, stripes_copies_and_memory_are_loaded_as_well) {
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes = pattern(0, 30'000);
  std::vector<std::filesystem::path> paths{folder.file("one"), folder.file("other")};
  {
    array<std::byte> made(paths,
                          {.mode = "w+",
                           .device = "host",
                           .line_size = 512,
                           .count = bytes.size(),
                           .stripe_size = 1024});
    ASSERT_EQ(hippogriff_array_write(made.get(), 0, bytes.data(), bytes.size()), HIPPOGRIFF_OK);
    made.flush();
    EXPECT_EQ(made.statistics().loaded_bytes, 0U) << "there was nothing";
  }
  const array<std::byte> striped(paths,
                                 {.device = "host",
                                  .line_size = 512,
                                  .count = bytes.size(),
                                  .stripe_size = 1024,
                                  .load = "all"});
  expect_all(striped, bytes);
  EXPECT_EQ(striped.statistics().misses, 0U);
  write_bytes(paths[0].string(), bytes);
  write_bytes(paths[1].string(), bytes);
  const array<std::byte> copies(
      paths, {.device = "host", .line_size = 512, .layout = "replicated", .load = "all"});
  expect_all(copies, bytes);
  EXPECT_EQ(copies.statistics().misses, 0U);
  std::vector<std::byte> memory = bytes;
  const array<std::byte> copied(std::span<std::byte>(memory), {.device = "host", .load = "all"});
  expect_all(copied, bytes);
  EXPECT_EQ(copied.statistics().misses, 0U);
  const array<std::byte> plain(std::span<std::byte>(memory), {.device = "host"});
  EXPECT_EQ(plain.statistics().loaded_bytes, 0U);
}

TEST(Loading, a_cache_takes_no_more_memory_than_all_of_the_array) {
  const TemporaryFolder folder;
  const std::string path = folder.file("bytes");
  write_bytes(path, pattern(0, 10'000));
  const array<std::byte> opened(
      path, {.device = "host", .cache_size = std::uint64_t{1} << 39, .line_size = 512});
  EXPECT_EQ(opened.view().cache().places.place_count(), 24U);
  char* json = nullptr;
  ASSERT_EQ(hippogriff_array_explain(opened.get(), &json), HIPPOGRIFF_OK);
  const auto told = nlohmann::json::parse(json);
  hippogriff_free_string(json);
  EXPECT_EQ(told.at("cache_bytes"), 24 * 512);
  EXPECT_EQ(told.at("loaded_bytes"), 10'000);
  EXPECT_EQ(told.at("better"), "array");
}

// With the queues of the device host. Below it is more: they are as many for a cache of any size.
TEST(Metadata, is_at_most_a_fiftieth_of_caches_from_6_MiB_on_in_4_KiB_lines) {
  const TemporaryFolder folder;
  const std::string path = folder.file("bytes");
  write_bytes(path, {});
  std::filesystem::resize_file(path, std::uint64_t{1} << 30);
  const auto share = [&](std::uint64_t cache_bytes) {
    const array<std::byte> opened(path, {.device = "host", .cache_size = cache_bytes});
    return static_cast<double>(opened.statistics().metadata_bytes) /
           static_cast<double>(cache_bytes);
  };
  for (const std::uint64_t mib : {6, 7, 8, 13, 64, 256}) {
    EXPECT_LE(share(mib << 20), 0.02) << mib;
  }
  EXPECT_GT(share(std::uint64_t{4} << 20), 0.02) << "docs/storage_arrays.md says from where on";
}

}  // namespace
}  // namespace hippogriff
