// What machines and their control groups leave.
#include "base/machine_memory.hpp"

#include "testing/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace hippogriff {
namespace {

class MachineMemoryTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root() + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  void limit(const std::string& group, const std::string& most, std::uint64_t used) {
    write("/sys/fs/cgroup" + group + "/memory.max", most + "\n");
    write("/sys/fs/cgroup" + group + "/memory.current", std::to_string(used) + "\n");
  }

  std::string root() { return folder_.file("root"); }

 private:
  TemporaryFolder folder_;
};

TEST_F(MachineMemoryTest, is_the_machines_without_groups) {
  write("/proc/meminfo", "MemTotal: 8 kB\nMemFree: 1 kB\nMemAvailable: 4 kB\n");
  EXPECT_EQ(machine_memory(root()).total, 8192U);
  EXPECT_EQ(machine_memory(root()).available, 4096U);
}

TEST_F(MachineMemoryTest, is_what_the_tightest_group_leaves) {
  write("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 900 kB\n");
  write("/proc/self/cgroup", "0::/outer/inner\n");
  limit("/outer/inner", "max", 5);
  limit("/outer", "100000", 70000);
  EXPECT_EQ(machine_memory(root()).total, 100000U);
  EXPECT_EQ(machine_memory(root()).available, 30000U);
  write("/sys/fs/cgroup/outer/memory.stat", "anon 9\ninactive_file 20000\nactive_file 10000\n");
  EXPECT_EQ(machine_memory(root()).available, 60000U) << "its page cache can be taken back";
  write("/sys/fs/cgroup/outer/inner/memory.high", "80000\n");
  EXPECT_EQ(machine_memory(root()).total, 80000U);
  limit("/outer/inner", "50000", 60000);
  EXPECT_EQ(machine_memory(root()).total, 50000U);
  EXPECT_EQ(machine_memory(root()).available, 0U);
}

TEST_F(MachineMemoryTest, is_bounded_by_the_root_of_a_container) {
  write("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 900 kB\n");
  write("/proc/self/cgroup", "0::/\n");
  limit("", "40000", 30000);
  EXPECT_EQ(machine_memory(root()).total, 40000U);
  EXPECT_EQ(machine_memory(root()).available, 10000U);
  write("/proc/self/cgroup", "0::/../elsewhere\n");
  EXPECT_EQ(machine_memory(root()).total, 40000U);
}

TEST_F(MachineMemoryTest, is_bounded_by_groups_of_version_one) {
  write("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 900 kB\n");
  write("/proc/self/cgroup", "4:memory:/docker/x\n0::/\n");
  const std::string group = "/sys/fs/cgroup/memory/docker/x";
  write(group + "/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(machine_memory(root()).total, 1024000U) << "there is none";
  write(group + "/memory.limit_in_bytes", "60000\n");
  write(group + "/memory.usage_in_bytes", "50000\n");
  write(group + "/memory.stat", "inactive_file 9\ntotal_inactive_file 5000\n");
  EXPECT_EQ(machine_memory(root()).total, 60000U);
  EXPECT_EQ(machine_memory(root()).available, 15000U);
}

TEST_F(MachineMemoryTest, is_unknown_where_nothing_tells) {
  EXPECT_EQ(machine_memory(root()).total, UINT64_MAX);
  EXPECT_EQ(machine_memory(root()).available, UINT64_MAX);
  EXPECT_GT(machine_memory().available, std::uint64_t{1} << 20) << "of this machine";
  EXPECT_GE(machine_memory().total, machine_memory().available);
}

TEST(TotalMemory, is_that_of_this_process_whenever_it_is_asked_for) {
  const std::uint64_t total = total_memory_bytes();
  EXPECT_EQ(total, machine_memory().total);
  EXPECT_EQ(total, total_memory_bytes());
}

}  // namespace
}  // namespace hippogriff
