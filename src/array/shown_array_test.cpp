// What other processes are shown of an array, and when.
#include "node/node.hpp"
#include "testing/array_fixture.hpp"
#include "testing/node_segment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace hippogriff::ondemand {
namespace {

using hippogriff::testing::eventually;
using hippogriff::testing::TemporarySegment;

class ShownArray : public ::testing::Test {
 protected:
  [[nodiscard]] TestArrayOptions shown(TestArrayOptions options) const {
    options.notice = mine_.notice_array();
    return options;
  }

  [[nodiscard]] std::vector<node::SeenArray> seen() { return other_.view().arrays; }

  // Whether the first array that is seen counts what it says itself.
  [[nodiscard]] bool agrees(StorageArray& array) {
    const node::ArrayCounts there = seen().at(0).counts;
    const CacheCounts lines = array.counts();
    const ServedCounts served = array.served();
    return there.accesses == lines.accesses && there.counts_accesses &&
           there.misses == lines.misses && there.overwritten == lines.overwritten &&
           there.written_back == lines.written_back && there.read_bytes == served.read_bytes &&
           there.written_bytes == served.written_bytes && there.in_flight == 0;
  }

 private:
  const TemporarySegment place_;
  const node::Node mine_{place_.options()};
  node::Node other_{place_.options()};
};

TEST_F(ShownArray, is_seen_from_its_opening_to_its_end) {
  TestArray array(shown({.size_bytes = 64 << 10, .cache_bytes = 16 << 10, .line_bytes = 1024}));
  ASSERT_EQ(seen().size(), 1U);
  const node::SeenArray first = seen()[0];
  EXPECT_EQ(first.shown.device, node::device_key("host"));
  EXPECT_EQ(first.shown.size_bytes, 64U << 10);
  EXPECT_EQ(first.shown.cache_bytes, array.array().cache_bytes());
  EXPECT_EQ(first.shown.line_bytes, 1024U);
  EXPECT_EQ(first.counts.accesses, 0U);
  array.array().close();
  EXPECT_TRUE(seen().empty());
}

TEST_F(ShownArray, counts_what_its_threads_and_its_controller_do) {
  for (const bool in_memory : {false, true}) {
    TestArray array(shown({.in_memory = in_memory}));
    const auto view = array.view<std::uint64_t>();
    on_threads(4, [&](int thread) {
      for (auto i = static_cast<std::uint64_t>(thread); i < view.size(); i += 4) {
        ASSERT_EQ(view.write(i, i), NvmeStatus::success);
      }
    });
    array.array().flush();
    EXPECT_TRUE(eventually([&] { return agrees(array.array()); }));
    EXPECT_GT(seen()[0].counts.misses, 0U);
    EXPECT_GT(seen()[0].counts.written_bytes, 0U);
  }
}

// Nobody wakes it for that: it looks up twice a second.
TEST_F(ShownArray, is_shown_anew_when_only_hits_come_and_its_controller_sleeps) {
  TestArray array(shown({}));
  const auto view = array.view<std::uint64_t>();
  static_cast<void>(view[0]);
  EXPECT_TRUE(eventually([&] { return agrees(array.array()); }));
  const node::SeenArray before = seen()[0];
  for (int i = 0; i < 1000; ++i) {
    static_cast<void>(view[1]);
  }
  EXPECT_TRUE(eventually([&] { return agrees(array.array()); }));
  const node::SeenArray after = seen()[0];
  EXPECT_EQ(after.counts.misses, before.counts.misses);
  EXPECT_EQ(after.counts.accesses, before.counts.accesses + 1000);
  EXPECT_GT(after.counted_ns, before.counted_ns);
}

// What a kernel counts, one access in so many.
TEST(AccessCount, is_shown_at_once_as_long_as_it_is_small_and_then_seldom) {
  std::uint64_t shown = 0;
  AccessCount mine{.count = 0, .shown = &shown};
  for (std::uint64_t samples = 1; samples < 3000; ++samples) {
    count_sample(mine);
    ASSERT_EQ(mine.count, samples * access_sample);
    ASSERT_LE(shown, mine.count);
    if (mine.count <= accesses_shown_at_once) {
      ASSERT_EQ(shown, mine.count);
    } else {
      ASSERT_GE(shown + std::uint64_t{15} * access_sample, mine.count);
      ASSERT_EQ(shown / access_sample % 16, 0U) << "each is a store across the link";
    }
  }
  AccessCount unseen;
  count_sample(unseen);
  EXPECT_EQ(unseen.count, access_sample);
}

TEST(AccessCount, that_a_late_thread_sets_back_is_told_as_it_was) {
  TestArray array({});
  const shared_ref<std::uint64_t> count(array.array().cache().accesses[9].count);
  std::uint64_t told = 0;
  for (const std::uint64_t now : {100U, 60U, 100U, 101U, 0U}) {
    count.store(now, relaxed);
    told = std::max(told, now);
    EXPECT_EQ(array.array().counts().accesses, told) << now;
  }
}

TEST(SeenAccesses, only_grow_whoever_looks) {
  std::vector<std::uint64_t> shown(access_counts, 0);
  SeenAccesses seen;
  on_threads(4, [&](int thread) {
    const auto most = 1000 * static_cast<std::uint64_t>(thread + 1);
    std::uint64_t before = 0;
    for (std::uint64_t number = 0; number <= most; ++number) {
      seen.see(63, number);
      const std::uint64_t now = seen.sum();
      ASSERT_GE(now, std::max(before, number));
      before = now;
    }
  });
  EXPECT_EQ(seen.sum(), 4000U);
  shown[0] = 5;
  seen.see_shown(shown);
  EXPECT_EQ(seen.sum(), 4005U);
  shown[0] = 3;
  shown[63] = 4001;
  seen.see_shown(shown);
  EXPECT_EQ(seen.sum(), 4006U);
}

TEST_F(ShownArray, that_could_not_be_opened_is_not_seen) {
  EXPECT_THROW(TestArray(shown({.line_bytes = 1000})), Error);
  EXPECT_TRUE(seen().empty());
}

TEST_F(ShownArray, is_not_the_array_of_others) {
  const TestArray first(shown({.size_bytes = 1 << 10}));
  auto second = std::make_unique<TestArray>(shown({.size_bytes = 2 << 10}));
  const TestArray unseen(TestArrayOptions{});
  EXPECT_EQ(seen().size(), 2U);
  second.reset();
  ASSERT_EQ(seen().size(), 1U);
  EXPECT_EQ(seen()[0].shown.size_bytes, 1U << 10);
}

}  // namespace
}  // namespace hippogriff::ondemand
