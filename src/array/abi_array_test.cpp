// The C and C++ interface of arrays, on device host.
#include "testing/storage_fixture.hpp"
#include "testing/temporary_folder.hpp"

#include <hippogriff/array.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

struct Point {
  float x = 0;
  float y = 0;
  std::int32_t name = 0;

  friend bool operator==(const Point&, const Point&) = default;
};

hippogriff_status status_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const TransferError& error) {
    return error.status();
  }
  return HIPPOGRIFF_OK;
}

// Makes a file of points, by eight threads.
void write_points(const std::string& path, std::uint64_t count) {
  array<Point> points(
      path, {.mode = "w+", .device = "host", .cache_size = 4096, .line_size = 512, .count = count});
  ASSERT_EQ(points.size(), count);
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = thread; i < count; i += 8) {
        points.view().write(i, {static_cast<float>(i), 1, static_cast<std::int32_t>(i)});
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  points.flush();
}

TEST(Array, what_threads_wrote_to_a_new_file_is_there_when_it_is_opened_again) {
  const TemporaryFolder folder;
  const std::string path = folder.file("points");
  constexpr std::uint64_t count = 5000;
  write_points(path, count);
  EXPECT_EQ(std::filesystem::file_size(path), count * sizeof(Point));
  const array<Point> points(path, {.device = "host"});
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(points.view()[i], (Point{static_cast<float>(i), 1, static_cast<std::int32_t>(i)}));
  }
  EXPECT_EQ(points.statistics().misses, 0U);
  EXPECT_EQ(points.statistics().loaded_bytes, count * sizeof(Point));
  points.check_accesses();
}

TEST(Array, memory_is_an_array_as_well) {
  std::vector<std::int32_t> memory(10'000, 3);
  array<std::int32_t> numbers(std::span<std::int32_t>(memory),
                              {.mode = "r+", .device = "host", .cache_size = 8192});
  EXPECT_EQ(numbers.view()[9999], 3);
  numbers.view().write(9999, 4);
  numbers.flush();
  EXPECT_EQ(memory[9999], 4);
}

TEST(Array, as_many_elements_of_memory_as_are_asked_for_are_one) {
  std::vector<std::int32_t> memory(10, 3);
  const std::span<std::int32_t> all(memory);
  EXPECT_EQ(array<std::int32_t>(all, {.device = "host", .count = 4}).size(), 4U);
  EXPECT_THROW(array<std::int32_t>(all, {.device = "host", .count = 11}), std::length_error);
}

TEST(Array, each_access_that_fails_tells_of_itself) {
  const TemporaryFolder folder;
  write_points(folder.file("points"), 5000);
  const array<Point> points(folder.file("points"),
                            {.device = "host", .line_size = 512, .load = "none"});
  std::filesystem::resize_file(folder.file("points"), 1024);
  const auto offset_of = [&](auto call) {
    EXPECT_EQ(call(), HIPPOGRIFF_SHORT_FILE);
    hippogriff_error error{};
    hippogriff_last_error(&error);
    return error.offset;
  };
  std::array<char, 24> to{};
  const auto read = [&](std::uint64_t offset) {
    return hippogriff_array_read(points.get(), offset, to.data(), 12);
  };
  const std::array<std::uint64_t, 2> rows{1, 1500};
  EXPECT_EQ(offset_of([&] { return read(30'000); }), 29'696U);
  EXPECT_EQ(offset_of([&] { return read(5000); }), 4608U);
  EXPECT_EQ(offset_of([&] {
              return hippogriff_array_gather(points.get(), rows.data(), 2, 12, to.data());
            }),
            17'920U);
  EXPECT_EQ(offset_of([&] { return read(30'000); }), 29'696U);
  EXPECT_EQ(offset_of([&] { return hippogriff_array_check(points.get()); }), 29'696U)
      << "the first";
}

TEST(Array, a_part_of_a_file_is_an_array_of_its_own) {
  const TemporaryFolder folder;
  const std::string path = folder.file("bytes");
  const auto bytes = pattern(0, 10'000);
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), 10'000);
  const array<std::byte> rest(path, {.device = "host", .offset = 777});
  ASSERT_EQ(rest.size(), 10'000U - 777);
  EXPECT_EQ(rest.view()[0], pattern_at(777));
  EXPECT_EQ(rest.view()[9222], pattern_at(9999));
  const array<std::byte> part(path, {.device = "host", .offset = 777, .count = 10});
  EXPECT_EQ(part.size(), 10U);
}

TEST(Array, what_cannot_be_opened_says_why) {
  const TemporaryFolder folder;
  const std::string path = folder.file("bytes");
  std::ofstream(path) << "twelve bytes";
  const auto open = [&](const array_options& options) {
    return status_of([&] { const array<char> opened(path, options); });
  };
  EXPECT_EQ(open({.device = "host"}), HIPPOGRIFF_OK);
  EXPECT_EQ(open({.mode = "x", .device = "host"}), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(open({.mode = "w+", .device = "host"}), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(open({.device = "host", .line_size = 1000}), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(open({.device = "host", .offset = 13}), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(open({.device = "host", .offset = 12}), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(open({.device = "host", .count = 13}), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(open({.device = "host", .count = UINT64_MAX}), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { const array<char> opened(folder.file("none"), {.device = "host"}); }),
            HIPPOGRIFF_IO_ERROR);
  EXPECT_EQ(std::filesystem::file_size(path), 12U) << "nothing was cut";
}

TEST(Array, arguments_of_the_c_functions_are_checked) {
  ASSERT_EQ(hippogriff_init(), HIPPOGRIFF_OK);
  hippogriff_array_options options{};
  hippogriff_storage_array* handle = nullptr;
  EXPECT_EQ(hippogriff_array_open(nullptr, &handle), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_open(&options, &handle), HIPPOGRIFF_INVALID_ARGUMENT);
  options.struct_size = sizeof options;
  EXPECT_EQ(hippogriff_array_open(&options, &handle), HIPPOGRIFF_INVALID_ARGUMENT);
  std::array<char, 1000> memory{};
  options.memory = memory.data();
  EXPECT_EQ(hippogriff_array_open(&options, &handle), HIPPOGRIFF_INVALID_ARGUMENT);
  options.size = memory.size();
  options.device = "host";
  EXPECT_EQ(hippogriff_array_open(&options, nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  options.wait_limit_ms = -1;
  EXPECT_EQ(hippogriff_array_open(&options, &handle), HIPPOGRIFF_INVALID_ARGUMENT);
  options.wait_limit_ms = 0;
  ASSERT_EQ(hippogriff_array_open(&options, &handle), HIPPOGRIFF_OK);
  char byte = 0;
  EXPECT_EQ(hippogriff_array_read(handle, 999, &byte, 1), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_array_read(handle, 1000, &byte, 1), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_read(handle, 1, &byte, SIZE_MAX), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_write(handle, 0, &byte, 1), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_view(handle, &byte, 1, 1), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_check(handle), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_array_close(handle), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_array_close(nullptr), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_array_check(nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK);
}

TEST(Array, a_file_stays_as_it_is_when_its_new_array_is_refused) {
  const TemporaryFolder folder;
  write_points(folder.file("points"), 100);
  const auto size = std::filesystem::file_size(folder.file("points"));
  for (const array_options& wrong :
       {array_options{.mode = "w+", .device = "host", .line_size = 1000, .count = 5},
        array_options{.mode = "w+", .device = "host", .cache_size = 100, .count = 5},
        array_options{.mode = "w+", .device = "host", .count = 5, .queue_depth = 3},
        array_options{.mode = "w+", .device = "host", .count = 5, .queue_count = 1025},
        array_options{
            .mode = "w+", .device = "host", .count = 5, .queue_count = 64, .queue_depth = 32768},
        array_options{.mode = "w+", .device = "cuda:99", .count = 5},
        array_options{.mode = "w+",
                      .device = "host",
                      .cache_size = std::uint64_t{1} << 41,
                      .count = std::uint64_t{1} << 36},
        array_options{.mode = "w+", .device = "host", .count = 5, .load = "some"},
        array_options{.mode = "w+", .device = "host", .count = UINT64_MAX / 4}}) {
    EXPECT_NE(status_of([&] { const array<Point> points(folder.file("points"), wrong); }),
              HIPPOGRIFF_OK);
    EXPECT_EQ(std::filesystem::file_size(folder.file("points")), size);
    EXPECT_NE(status_of([&] { const array<Point> points(folder.file("none"), wrong); }),
              HIPPOGRIFF_OK);
    EXPECT_FALSE(std::filesystem::exists(folder.file("none")));
  }
}

// What the file takes on its drive after one element was written.
std::uint64_t taken_by_a_write(const std::string& path, const char* io) {
  constexpr std::uint64_t count = std::uint64_t{8} << 20;
  array<std::uint64_t> numbers(
      path, {.mode = "w+", .device = "host", .line_size = 4096, .count = count, .io = io});
  EXPECT_EQ(numbers.view().write(count / 2, 7), ondemand::NvmeStatus::success);
  numbers.flush();
  struct ::stat facts = {};
  EXPECT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_size, count * sizeof(std::uint64_t));
  return static_cast<std::uint64_t>(facts.st_blocks) * 512;
}

TEST(Array, a_new_one_takes_blocks_by_regions_where_it_is_written_past_the_page_cache) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  const TemporaryFolder folder;
  EXPECT_LT(taken_by_a_write(folder.file("cached"), "cached"), mib);
  const int direct = ::open(folder.file("cached").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (direct < 0) {
    GTEST_SKIP() << "no O_DIRECT here";
  }
  ::close(direct);
  const std::uint64_t taken = taken_by_a_write(folder.file("direct"), "direct");
  EXPECT_GE(taken, 16 * mib);
  EXPECT_LT(taken, 17 * mib);
}

TEST(Array, memory_that_is_nowhere_is_refused) {
  const TemporaryFolder folder;
  write_points(folder.file("points"), 10);
  hippogriff_array_options options{};
  options.struct_size = sizeof options;
  const std::string path = folder.file("points");
  options.path = path.c_str();
  options.mode = "r+";
  options.device = "host";
  hippogriff_storage_array* opened = nullptr;
  ASSERT_EQ(hippogriff_array_open(&options, &opened), HIPPOGRIFF_OK);
  const std::uint64_t row = 0;
  EXPECT_EQ(hippogriff_array_read(opened, 0, nullptr, 4), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_write(opened, 0, nullptr, 4), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_gather(opened, &row, 1, 4, nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_scatter(opened, nullptr, 1, 4, &row), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_close(opened), HIPPOGRIFF_OK);
}

TEST(Array, cursors_that_are_linked_may_end_in_any_order) {
  const TemporaryFolder folder;
  write_points(folder.file("points"), 2000);
  const array<Point> points(folder.file("points"),
                            {.device = "host", .cache_size = 512, .line_size = 512});
  const auto view = points.view();
  linked_array_cursor<Point> first(view);
  {
    linked_array_cursor<Point> second(view);
    linked_array_cursor<Point> third(view);
    second.link(first);
    second.link(first);
    third.link(second);
    EXPECT_EQ(second[1000].name, 1000);
    EXPECT_EQ(third[1500].name, 1500);
  }
  EXPECT_EQ(first[3].name, 3);
  EXPECT_EQ(first[1900].name, 1900);
}

TEST(Array, a_forked_child_is_told_and_opens_its_own) {
  std::vector<std::int32_t> memory(1000, 7);
  const array<std::int32_t> numbers(std::span<std::int32_t>(memory), {.device = "host"});
  ASSERT_EQ(numbers.view()[1], 7);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int wrong = hippogriff_array_check(numbers.get()) == HIPPOGRIFF_FORKED ? 0 : 1;
    try {
      const array<std::int32_t> own(std::span<std::int32_t>(memory), {.device = "host"});
      wrong += own.view()[999] == 7 ? 0 : 2;
    } catch (const std::exception&) {
      wrong += 4;
    }
    _exit(wrong);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(numbers.view()[2], 7);
}

}  // namespace
}  // namespace hippogriff
