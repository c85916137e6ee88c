// The mountinfo parser on real lines, escapes and rubbish.
#include "storage/mountinfo.hpp"

#include <gtest/gtest.h>

namespace hippogriff {
namespace {

TEST(Mountinfo, a_line_with_optional_fields_is_read) {
  const auto mounts = parse_mountinfo(
      "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n");
  ASSERT_EQ(mounts.size(), 1U);
  EXPECT_EQ(mounts[0].id, 36U);
  EXPECT_EQ(mounts[0].parent_id, 35U);
  EXPECT_EQ(mounts[0].device_major, 98U);
  EXPECT_EQ(mounts[0].device_minor, 0U);
  EXPECT_EQ(mounts[0].root, "/mnt1");
  EXPECT_EQ(mounts[0].mount_point, "/mnt2");
  EXPECT_EQ(mounts[0].options, "rw,noatime");
  EXPECT_EQ(mounts[0].filesystem, "ext3");
  EXPECT_EQ(mounts[0].source, "/dev/root");
}

TEST(Mountinfo, a_line_without_optional_fields_or_source_is_read) {
  const auto mounts = parse_mountinfo("1 0 0:2 / / rw - rootfs  rw");
  ASSERT_EQ(mounts.size(), 1U);
  EXPECT_EQ(mounts[0].filesystem, "rootfs");
  EXPECT_EQ(mounts[0].source, "");
}

TEST(Mountinfo, octal_escapes_are_decoded_and_others_kept) {
  const auto mounts =
      parse_mountinfo("1 0 0:2 / /a\\040b\\134\\011\\9\\400\\04 rw - tmpfs t\\0123 rw");
  ASSERT_EQ(mounts.size(), 1U);
  EXPECT_EQ(mounts[0].mount_point, "/a b\\\t\\9\\400\\04");
  EXPECT_EQ(mounts[0].source, "t\n3");
}

TEST(Mountinfo, lines_that_are_no_mounts_are_left_out) {
  EXPECT_TRUE(parse_mountinfo("").empty());
  for (const char* line : {"\n\n",
                           "nonsense",
                           "1 2 3 / / rw - ext4 /dev/a rw",
                           "1 2 3:x / / rw - ext4 /dev/a rw",
                           "-1 2 3:4 / / rw - ext4 /dev/a rw",
                           "1 2 3:4 / / rw ext4 /dev/a rw",
                           "1 2 3:4 / / rw -",
                           "99999999999999999999 2 3:4 / / rw - ext4 /dev/a rw",
                           "1 2 3:4",
                           "1 2 3:4 /  rw - ext4 a"}) {
    EXPECT_TRUE(parse_mountinfo(line).empty()) << line;
  }
  EXPECT_EQ(parse_mountinfo("rubbish\n1 0 0:2 / / rw - ext4 a rw\n\nmore").size(), 1U);
}

TEST(Mountinfo, the_longest_and_last_mount_above_a_path_is_its_own) {
  const auto mounts = parse_mountinfo(
      "1 0 8:1 / / rw - ext4 /dev/a rw\n"
      "2 1 8:2 / /data rw - xfs /dev/b rw\n"
      "3 1 8:3 / /data rw - xfs /dev/c rw\n"
      "4 2 0:9 / /data/tmp rw - tmpfs t rw\n");
  EXPECT_EQ(mount_of_path(mounts, "/etc/passwd")->id, 1U);
  EXPECT_EQ(mount_of_path(mounts, "/data")->id, 3U);
  EXPECT_EQ(mount_of_path(mounts, "/data/x")->id, 3U);
  EXPECT_EQ(mount_of_path(mounts, "/database")->id, 1U);
  EXPECT_EQ(mount_of_path(mounts, "/data/tmp/y")->id, 4U);
  EXPECT_EQ(mount_of_path(mounts, "relative"), nullptr);
  EXPECT_EQ(mount_of_path({}, "/"), nullptr);
}

}  // namespace
}  // namespace hippogriff
