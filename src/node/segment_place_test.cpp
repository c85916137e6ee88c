// Where segments are, and segments that a group shares.
#include "node/segment_place.hpp"

#include "base/error.hpp"
#include "node/segment.hpp"
#include "testing/node_segment.hpp"
#include "testing/other_user.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace hippogriff::node {
namespace {

using hippogriff::testing::become;
using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::other_group;
using hippogriff::testing::shared_group;
using hippogriff::testing::somebody;
using hippogriff::testing::somebody_else;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using std::chrono::milliseconds;

std::string of_group(gid_t group, const TemporarySegment& segment) {
  return "group:" + std::to_string(group) + ":" + segment.path();
}

Status open_status(const std::string& address) {
  return status_of([&] { const Segment segment(SegmentPlace::parse(address), Books{}, Steps{}); });
}

NodeOptions options_of(const std::string& address) {
  NodeOptions options;
  options.path = address;
  return options;
}

TEST(SegmentPlace, tells_paths_and_groups_apart) {
  EXPECT_EQ(SegmentPlace::parse("").path, "/dev/shm/hippogriff-" + std::to_string(::geteuid()));
  EXPECT_FALSE(SegmentPlace::parse("").group.has_value());
  EXPECT_EQ(SegmentPlace::parse("/a:b").path, "/a:b");
  EXPECT_EQ(SegmentPlace::parse("group:77").path, "/dev/shm/hippogriff-group-77");
  EXPECT_EQ(SegmentPlace::parse("group:77").group, 77U);
  EXPECT_EQ(SegmentPlace::parse("group:77:/a:b").path, "/a:b");
  EXPECT_EQ(SegmentPlace::parse("group:root").group, 0U);
}

TEST(SegmentPlace, groups_that_do_not_exist_are_named) {
  for (const std::string address : {"group:",
                                    "group::/a",
                                    "group:no such",
                                    "group:-1",
                                    "group:7:",
                                    "group:99999999999999999999"}) {
    EXPECT_EQ(status_of([&] { SegmentPlace::parse(address); }), Status::invalid_argument)
        << address;
  }
}

TEST(GroupSegment, is_open_to_the_group_alone) {
  const TemporarySegment place;
  const gid_t own = ::getegid();
  const Segment segment(SegmentPlace::parse(of_group(own, place)), Books{}, Steps{});
  struct stat facts{};
  ASSERT_EQ(::stat(place.path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0660U);
  EXPECT_EQ(facts.st_gid, own);
  EXPECT_EQ(open_status(of_group(own, place)), Status::ok);
}

TEST(GroupSegment, is_not_taken_for_a_users_nor_for_another_groups) {
  const TemporarySegment place;
  const gid_t own = ::getegid();
  const Segment segment(SegmentPlace::parse(of_group(own, place)), Books{}, Steps{});
  EXPECT_EQ(open_status(place.path()), Status::unsupported);
  EXPECT_EQ(open_status(of_group(own + 1, place)), Status::unsupported);
  ASSERT_EQ(::chmod(place.path().c_str(), 0664), 0);
  EXPECT_EQ(open_status(of_group(own, place)), Status::unsupported);
}

TEST(GroupSegment, is_made_by_members_only) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can become somebody else";
  }
  const TemporarySegment place;
  Child outsider([&] {
    become(somebody, other_group);
    return open_status(of_group(shared_group, place)) == Status::io_error ? 0 : 1;
  });
  EXPECT_EQ(outsider.wait(), 0);
  EXPECT_NE(::access(place.path().c_str(), F_OK), 0) << "nothing was left behind";
  Child member([&] {
    become(somebody, shared_group);
    return open_status(of_group(shared_group, place)) == Status::ok ? 0 : 1;
  });
  EXPECT_EQ(member.wait(), 0);
  Child late([&] {
    become(somebody_else, other_group);
    return open_status(of_group(shared_group, place)) == Status::io_error ? 0 : 1;
  });
  EXPECT_EQ(late.wait(), 0) << "who is no member cannot open it";
}

TEST(GroupSegment, its_users_wait_for_each_others_memory_and_death) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can become somebody else";
  }
  const TemporarySegment place;
  const NodeOptions options = options_of(of_group(shared_group, place));
  const auto reserve_60 = [&](milliseconds timeout) {
    Node node(options);
    node.reserve({.device = node.add_device("gpu", 100), .size_bytes = 60, .timeout = timeout});
    ::pause();
    return 1;
  };
  // The process that holds memory, 0: none.
  const auto holder = [](Node& node) {
    for (const NodeView::Reservation& reservation : node.view().reservations) {
      if (reservation.record.size_bytes == 60) {
        return static_cast<pid_t>(reservation.pid);
      }
    }
    return pid_t{0};
  };
  Child first([&] {
    become(somebody, shared_group);
    return reserve_60(milliseconds(0));
  });
  Node watcher(options);
  ASSERT_TRUE(eventually([&] { return holder(watcher) == first.pid(); }));
  Child second([&] {
    become(somebody_else, shared_group);
    return reserve_60(std::chrono::minutes(1));
  });
  ASSERT_TRUE(eventually([&] { return watcher.view().reservations.size() == 2; }));
  EXPECT_EQ(holder(watcher), first.pid()) << "the second waits";
  first.send(SIGKILL);
  EXPECT_TRUE(eventually([&] { return holder(watcher) == second.pid(); }));
}

}  // namespace
}  // namespace hippogriff::node
