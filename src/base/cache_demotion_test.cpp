// That demoting lines changes none of them, wherever they begin and end.
#include "base/cache_demotion.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace hippogriff {
namespace {

TEST(CacheDemotion, leaves_bytes_as_they_are) {
  std::vector<std::byte> memory(1 << 16);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::byte>(i * 7 % 251);
  }
  const std::vector<std::byte> before = memory;
  const std::span<const std::byte> all(memory);
  demote_from_own_caches({});
  demote_from_own_caches(all.subspan(0, 0));
  demote_from_own_caches(all.subspan(13, 1));
  demote_from_own_caches(all.subspan(63, 66));
  demote_from_own_caches(all);
  EXPECT_EQ(memory, before);
}

}  // namespace
}  // namespace hippogriff
