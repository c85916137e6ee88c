// NVTX ranges as a profiler sees them: through an injection library.
#include "base/nvtx.hpp"

#include <gtest/gtest.h>

#if HIPPOGRIFF_HAS_NVTX
#include "testing/nvtx_injection/nvtx_injection.hpp"

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>
#endif

namespace hippogriff {
namespace {

#if HIPPOGRIFF_HAS_NVTX

using testing::NvtxRecord;
using testing::NvtxRecorder;

// The library is read at the first NVTX call of the process, which must not come before this.
const NvtxRecorder& recorder() {
  static const NvtxRecorder instance(HIPPOGRIFF_NVTX_INJECTION);
  return instance;
}

void move_bytes(std::uint64_t size_bytes) {
  static const NvtxName name("move");
  const NvtxRange range(name, size_bytes);
}

TEST(Nvtx, ranges_carry_domain_name_and_bytes) {
  recorder().clear();
  move_bytes(12345);
  const std::vector<NvtxRecord> records = recorder().records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].domain, "hippogriff");
  EXPECT_EQ(records[0].name, "move");
  EXPECT_EQ(records[0].payload, 12345U);
  EXPECT_TRUE(records[0].ended);
}

TEST(Nvtx, ranges_nest_and_end_in_order) {
  recorder().clear();
  static const NvtxName outer_name("outer");
  static const NvtxName inner_name("inner");
  {
    const NvtxRange outer(outer_name, UINT64_MAX);
    {
      const NvtxRange inner(inner_name, 0);
    }
    const std::vector<NvtxRecord> records = recorder().records();
    ASSERT_EQ(records.size(), 2U);
    EXPECT_FALSE(records[0].ended);
    EXPECT_EQ(records[0].payload, UINT64_MAX);
    EXPECT_EQ(records[1].name, "inner");
    EXPECT_TRUE(records[1].ended);
  }
  EXPECT_TRUE(recorder().records()[0].ended);
}

TEST(Nvtx, names_are_registered_once_whatever_the_threads) {
  recorder().clear();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([] { move_bytes(1); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(recorder().records().size(), 4U);
  EXPECT_EQ(recorder().registrations("move"), 1);
}

#else

TEST(Nvtx, ranges_cost_nothing_when_built_without) {
  static constexpr NvtxName name("move");
  const NvtxRange range(name, 1);
  EXPECT_EQ(sizeof(range), 1U);
}

#endif

}  // namespace
}  // namespace hippogriff
