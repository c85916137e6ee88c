// Drive facts from a tree of the test's own, and whatever this machine has.
#include "storage/drives.hpp"

#include "testing/storage_fixture.hpp"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <fstream>

namespace hippogriff {
namespace {

namespace fs = std::filesystem;

class Drives : public ::testing::Test {
 protected:
  void SetUp() override {
    trees.sys = home.path() / "sys";
    trees.proc = home.path() / "proc";
    put("devices/pci/nvme0n1/size", "2048\n");
    put("devices/pci/nvme0n1/device/model", "  Fast Drive 9  \n");
    put("devices/pci/nvme0n1/device/numa_node", "1\n");
    put("devices/pci/nvme0n1/queue/rotational", "0\n");
    put("devices/pci/nvme0n1/queue/logical_block_size", "512\n");
    put("devices/pci/nvme0n1/queue/physical_block_size", "4096\n");
    put("devices/pci/nvme0n1/queue/max_sectors_kb", "1280\n");
    put("devices/pci/nvme0n1/queue/nr_requests", "1023\n");
    put("devices/pci/nvme0n1/queue/read_ahead_kb", "128\n");
    put("devices/pci/nvme0n1/mq/0/nr_tags", "1023\n");
    put("devices/pci/nvme0n1/mq/1/nr_tags", "1023\n");
    put("devices/pci/nvme0n1/queue/scheduler", "[none] mq-deadline kyber\n");
    put("devices/pci/nvme0n1/nvme0n1p1/partition", "1\n");
    put("devices/virtual/loop0/size", "8\n");
    put("devices/virtual/dm-0/size", "nonsense\n");
    link("block/nvme0n1", "devices/pci/nvme0n1");
    link("block/loop0", "devices/virtual/loop0");
    link("block/dm-0", "devices/virtual/dm-0");
    link("dev/block/259:0", "devices/pci/nvme0n1");
    link("dev/block/259:1", "devices/pci/nvme0n1/nvme0n1p1");
    link("dev/block/253:0", "devices/virtual/dm-0");
  }

  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((trees.sys / name).parent_path());
    std::ofstream(trees.sys / name) << text;
  }

  void link(const std::string& name, const std::string& target) const {
    fs::create_directories((trees.sys / name).parent_path());
    fs::create_symlink(trees.sys / target, trees.sys / name);
  }

  TemporaryFolder home;
  SystemTrees trees;
};

TEST_F(Drives, a_partition_is_named_by_its_drive) {
  EXPECT_EQ(drive_name(makedev(259, 0), trees), "nvme0n1");
  EXPECT_EQ(drive_name(makedev(259, 1), trees), "nvme0n1");
  EXPECT_EQ(drive_name(makedev(253, 0), trees), "dm-0");
  EXPECT_EQ(drive_name(makedev(0, 27), trees), "");
}

TEST_F(Drives, logical_blocks_are_the_drives) {
  EXPECT_EQ(logical_block_bytes(makedev(259, 1), trees), 512U);
  EXPECT_EQ(logical_block_bytes(makedev(253, 0), trees), std::nullopt);
  EXPECT_EQ(logical_block_bytes(makedev(1, 1), trees), std::nullopt);
}

TEST_F(Drives, numbers_that_cannot_be_are_none) {
  put("devices/pci/nvme0n1/size", "36028797018963969\n");  // 2^55 + 1 sectors
  put("devices/pci/nvme0n1/queue/max_sectors_kb", "18446744073709551615\n");
  put("devices/pci/nvme0n1/queue/read_ahead_kb", "-4\n");
  put("devices/pci/nvme0n1/device/numa_node", "-512\n");
  const auto facts = drive_facts("nvme0n1", trees);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->size_bytes, 0U);
  EXPECT_EQ(facts->request_bytes_max, 0U);
  EXPECT_EQ(facts->readahead_bytes, 0U);
  EXPECT_EQ(facts->numa_node, -1);
}

TEST_F(Drives, facts_are_read_and_what_is_absent_is_empty) {
  const auto facts = drive_facts("nvme0n1", trees);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->model, "Fast Drive 9");
  EXPECT_EQ(facts->size_bytes, 2048U * 512);
  EXPECT_EQ(facts->rotational, false);
  EXPECT_EQ(facts->logical_block_bytes, 512U);
  EXPECT_EQ(facts->physical_block_bytes, 4096U);
  EXPECT_EQ(facts->request_bytes_max, 1280U * 1024);
  EXPECT_EQ(facts->request_count_max, 1023U);
  EXPECT_EQ(facts->request_queue_count, 2U);
  EXPECT_EQ(facts->readahead_bytes, 128U * 1024);
  EXPECT_EQ(facts->scheduler, "none");
  EXPECT_EQ(facts->numa_node, 1);
  const auto bare = drive_facts("dm-0", trees);
  ASSERT_TRUE(bare.has_value());
  EXPECT_EQ(bare->size_bytes, 0U);
  EXPECT_EQ(bare->rotational, std::nullopt);
  EXPECT_EQ(bare->request_queue_count, 0U);
  EXPECT_EQ(bare->numa_node, -1);
}

TEST_F(Drives, a_scheduler_has_no_white_space_around_it) {
  for (const char* choices : {"mq-deadline [ bfq ] none", "] [bfq\t]", " bfq\n", "[\n bfq]"}) {
    put("devices/pci/nvme0n1/queue/scheduler", choices);
    EXPECT_EQ(drive_facts("nvme0n1", trees)->scheduler, "bfq") << choices;
  }
  put("devices/pci/nvme0n1/queue/scheduler", "none [ ]");
  EXPECT_EQ(drive_facts("nvme0n1", trees)->scheduler, "");
}

TEST_F(Drives, names_that_are_no_drives_have_no_facts) {
  for (const char* name : {"", ".", "..", "sdz", "../block/nvme0n1", "nvme0n1/queue"}) {
    EXPECT_FALSE(drive_facts(name, trees).has_value()) << name;
  }
}

TEST_F(Drives, the_list_leaves_out_memory_disks_and_empty_drives) {
  const auto drives = list_drives(trees);
  ASSERT_EQ(drives.size(), 1U);
  EXPECT_EQ(drives[0].name, "nvme0n1");
  EXPECT_TRUE(list_drives({.sys = home.path() / "none"}).empty());
}

TEST_F(Drives, mounts_that_cannot_be_read_are_an_io_error) {
  const Failure failure = failure_of([&] { static_cast<void>(read_mounts(trees)); });
  EXPECT_EQ(failure.status, Status::io_error);
  EXPECT_EQ(failure.errno_value, ENOENT);
  EXPECT_EQ(drive_of_mount(1, trees), "");
}

TEST(DrivesHere, the_build_folder_has_a_mount) {
  const PathFacts facts = path_facts(".");
  EXPECT_EQ(facts.path, fs::canonical(".").string());
  EXPECT_FALSE(facts.mount_point.empty());
  EXPECT_FALSE(facts.filesystem.empty());
  EXPECT_GT(facts.size_bytes, 0U);
  EXPECT_LE(facts.free_bytes, facts.size_bytes);
}

TEST(DrivesHere, shared_memory_has_no_drive) {
  const PathFacts facts = path_facts("/dev/shm");
  EXPECT_EQ(facts.filesystem, "tmpfs");
  EXPECT_FALSE(facts.drive.has_value());
}

TEST(DrivesHere, a_path_that_is_not_there_is_an_io_error) {
  EXPECT_EQ(failure_of([] { static_cast<void>(path_facts("/none/such")); }).errno_value, ENOENT);
}

TEST(DrivesHere, drives_of_this_machine_have_names_and_sizes) {
  for (const DriveFacts& drive : list_drives()) {
    EXPECT_FALSE(drive.name.empty());
    EXPECT_GT(drive.size_bytes, 0U);
  }
}

}  // namespace
}  // namespace hippogriff
