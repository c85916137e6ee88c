// Nodes by a made-up sysfs, and policies as the kernel has them: a machine of one node is enough.
#include "device/numa.hpp"

#include "device/host_memory.hpp"
#include "testing/numa_policy.hpp"
#include "testing/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

namespace hippogriff {
namespace {

using testing::numa_policy;
using testing::NumaPolicy;

TEST(Numa, node_of_a_device_is_what_sysfs_says) {
  const TemporaryFolder sysfs;
  const auto devices = sysfs.path() / "bus" / "pci" / "devices";
  const auto put = [&](const std::string& bus_id, const std::string& text) {
    std::filesystem::create_directories(devices / bus_id);
    std::ofstream(devices / bus_id / "numa_node") << text;
  };
  put("0000:1b:00.0", "0\n");
  put("0000:9c:00.0", "1\n");
  put("0000:00:01.0", "-1\n");  // a machine of one node
  put("0000:00:02.0", "-7\n");
  put("0000:00:03.0", "none\n");
  put("0000:00:04.0", "99999999999999999999\n");
  const auto node = [&](const char* bus_id) {
    return numa_node_of_pci_device(bus_id, sysfs.path());
  };
  EXPECT_EQ(node("0000:1b:00.0"), 0);
  EXPECT_EQ(node("0000:9c:00.0"), 1);
  for (const char* without :
       {"0000:00:01.0", "0000:00:02.0", "0000:00:03.0", "0000:00:04.0", "0000:00:05.0", ""}) {
    EXPECT_EQ(node(without), -1) << without;
  }
}

TEST(Numa, pages_prefer_the_node_they_were_given) {
  const PageMapping pages(std::size_t{1} << 20);
  if (!numa_policy(pages.data())) {
    GTEST_SKIP() << "the kernel tells no policies here";
  }
  EXPECT_EQ(numa_policy(pages.data()), NumaPolicy{});
  EXPECT_EQ(prefer_numa_node(pages.data(), pages.size_bytes(), -1), 0);
  EXPECT_EQ(numa_policy(pages.data()), NumaPolicy{});
  const int refused = prefer_numa_node(pages.data(), pages.size_bytes(), 0);
  if (refused == EPERM) {
    GTEST_SKIP() << "policies are forbidden here";
  }
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(numa_policy(pages.data()), (NumaPolicy{MPOL_PREFERRED, 1}));
  EXPECT_EQ(numa_policy(pages.data() + pages.size_bytes() - 1), (NumaPolicy{MPOL_PREFERRED, 1}));
}

TEST(Numa, node_that_is_none_is_an_errno_and_the_pages_work) {
  const PageMapping pages(std::size_t{1} << 20);
  for (const int node : {1000, 1022, 1023, 1024, 1 << 30}) {
    EXPECT_NE(prefer_numa_node(pages.data(), pages.size_bytes(), node), 0) << node;
  }
  pages.data()[pages.size_bytes() - 1] = std::byte{7};
}

}  // namespace
}  // namespace hippogriff
