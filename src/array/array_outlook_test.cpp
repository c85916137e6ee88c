// What explain says of arrays.
#include "array/array_outlook.hpp"

#include "testing/array_fixture.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace hippogriff::ondemand {
namespace {

nlohmann::json explained(TestArray& array) {
  return nlohmann::json::parse(explain_array(array.array(), "a queue"));
}

TEST(ArrayOutlook, the_better_way_goes_by_cache_residency_and_free_memory) {
  ArrayFacts facts{.size_bytes = 1000, .device_free_bytes = 999};
  EXPECT_STREQ(better_way(facts).way, "array");
  const std::string larger = better_way(facts).why;
  facts.device_free_bytes = 1000;
  EXPECT_STREQ(better_way(facts).way, "array");
  EXPECT_NE(better_way(facts).why, larger) << "loading may be better";
  facts.resident_bytes = 1000;
  EXPECT_STREQ(better_way(facts).way, "map");
  facts.on_host = false;
  EXPECT_STREQ(better_way(facts).way, "array") << "a GPU's threads map it by the array";
  facts.fits_cache = true;
  EXPECT_STREQ(better_way(facts).way, "load");
  EXPECT_STREQ(better_way({.source = LineSource::shared_memory, .size_bytes = 1}).way, "map");
}

TEST(ArrayOutlook, files_are_told_with_their_bytes_and_the_reason_of_the_way) {
  TestArray array({.size_bytes = 10'000, .files = 3, .stripe_bytes = 4096});
  const auto told = explained(array);
  EXPECT_EQ(told["layout"], "striped");
  EXPECT_EQ(told["files"].size(), 3U);
  EXPECT_EQ(told["files"][1]["path"], array.path(1));
  EXPECT_EQ(told["files"][2]["bytes"], 1808U);
  EXPECT_EQ(told["source"], "files through the page cache");
  EXPECT_EQ(told["reason"], "asked for");
  EXPECT_EQ(told["io_queue"], "a queue");
  EXPECT_EQ(told["better"], "load") << "10 KB in a cache of 16 KiB";
}

TEST(ArrayOutlook, memory_has_no_files) {
  TestArray array({.in_memory = true});
  const auto told = explained(array);
  EXPECT_EQ(told["layout"], "memory");
  EXPECT_TRUE(told["files"].empty());
  EXPECT_EQ(told["better"], "map");
  EXPECT_FALSE(told.contains("io_queue"));
}

TEST(ArrayOutlook, direct_reads_and_changes_of_mode_c_are_told) {
  TestArray array({.overlaid = true, .io = IoKind::direct});
  const auto told = explained(array);
  EXPECT_EQ(told["source"] == "files past the page cache (O_DIRECT)", array.is_direct());
  EXPECT_FALSE(told["overlay"].get<std::string>().empty());
}

}  // namespace
}  // namespace hippogriff::ondemand
