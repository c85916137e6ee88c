// Where the real driver is looked for, and that ours is never among it.
#include "shim/driver_file.hpp"

#include "testing/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace {

using hippogriff::shim::cached_paths;
using hippogriff::shim::driver_candidates;

class DriverFile : public ::testing::Test {
 protected:
  // NOLINTBEGIN(concurrency-mt-unsafe): the test has one thread
  void SetUp() override { ::unsetenv("HIPPOGRIFF_CUDA_DRIVER"); }

  static void search(const std::string& folders) {
    ::setenv("LD_LIBRARY_PATH", folders.c_str(), 1);
  }

  static void choose(const std::string& name) {
    ::setenv("HIPPOGRIFF_CUDA_DRIVER", name.c_str(), 1);
  }

  // NOLINTEND(concurrency-mt-unsafe)

  std::string make(const std::string& name) {
    const std::filesystem::path path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << name;
    return path.string();
  }

  [[nodiscard]] std::string in(const std::string& name) const { return folder_.file(name); }

 private:
  hippogriff::TemporaryFolder folder_;
};

void append_word(std::string& bytes, std::uint32_t word) {
  bytes.append(reinterpret_cast<const char*>(&word), sizeof(word));
}

// A loader's cache with one library.
std::string cache_with(const std::string& name, const std::string& path) {
  std::string bytes = "glibc-ld.so.cache1.1";
  append_word(bytes, 1);
  bytes.resize(48);
  append_word(bytes, 0x0303);
  append_word(bytes, 72);
  append_word(bytes, static_cast<std::uint32_t>(72 + name.size() + 1));
  bytes.resize(72);
  return bytes + name + '\0' + path + '\0';
}

TEST_F(DriverFile, the_first_in_the_library_path_that_is_not_ours_comes_first) {
  const std::string ours = make("ours/libcuda.so.1");
  const std::string theirs = make("theirs/libcuda.so.1");
  std::filesystem::create_directories(in("alias"));
  std::filesystem::create_hard_link(ours, in("alias/libcuda.so.1"));
  search(in("ours") + ":" + in("alias") + ":" + in("none") + "::" + in("theirs"));
  const auto candidates = driver_candidates(ours);
  ASSERT_FALSE(candidates.empty());
  EXPECT_EQ(candidates.front(), theirs);
  EXPECT_EQ(std::count(candidates.begin(), candidates.end(), ours), 0);
}

TEST_F(DriverFile, a_path_in_the_setting_is_the_only_one) {
  search(in("theirs"));
  make("theirs/libcuda.so.1");
  choose(make("chosen/driver.so"));
  EXPECT_EQ(driver_candidates("/nowhere"), std::vector<std::string>{in("chosen/driver.so")});
  choose(in("none/driver.so"));
  EXPECT_TRUE(driver_candidates("/nowhere").empty());
}

TEST_F(DriverFile, a_name_in_the_setting_is_searched_for) {
  search(in("theirs"));
  const std::string other = make("theirs/libother.so.1");
  choose("libother.so.1");
  const auto candidates = driver_candidates("/nowhere");
  ASSERT_FALSE(candidates.empty());
  EXPECT_EQ(candidates.front(), other);
}

TEST_F(DriverFile, an_empty_setting_turns_cuda_off) {
  search(in("theirs"));
  make("theirs/libcuda.so.1");
  choose("");
  EXPECT_TRUE(driver_candidates("/nowhere").empty());
}

TEST_F(DriverFile, the_loaders_cache_says_where_a_library_is) {
  const std::string cache = cache_with("libcuda.so.1", "/somewhere/libcuda.so.1");
  EXPECT_EQ(cached_paths(cache, "libcuda.so.1"),
            std::vector<std::string>{"/somewhere/libcuda.so.1"});
  EXPECT_TRUE(cached_paths(cache, "libcuda.so").empty());
  EXPECT_EQ(cached_paths("old format" + cache, "libcuda.so.1").size(), 1U);
}

TEST_F(DriverFile, a_broken_cache_says_nothing) {
  const std::string whole = cache_with("libcuda.so.1", "/somewhere/libcuda.so.1");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto paths = cached_paths(whole.substr(0, size), "libcuda.so.1");
    EXPECT_TRUE(paths.empty() || paths.front().empty()) << size;
  }
  std::string lying = whole;
  std::memset(lying.data() + 20, 0xFF, 4);
  EXPECT_EQ(cached_paths(lying, "libcuda.so.1").size(), 1U);
  std::memset(lying.data() + 48, 0xFF, 24);
  EXPECT_TRUE(cached_paths(lying, "libcuda.so.1").empty());
}

}  // namespace
