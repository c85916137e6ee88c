// The segment's file: made, joined, refused, replaced; and the lock in it.
#include "node/segment.hpp"

#include "base/error.hpp"
#include "node/attachment.hpp"
#include "testing/node_segment.hpp"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using std::chrono::milliseconds;

constexpr Steps no_steps;

MonotonicTime deadline_in(int wait_ms = 1000) {
  return std::chrono::steady_clock::now() + milliseconds(wait_ms);
}

SegmentPlace at(const TemporarySegment& segment) {
  return SegmentPlace::parse(segment.path());
}

Status opening(const std::string& path) {
  return status_of([&] { const Segment segment({.path = path, .group = {}}, Books{}, no_steps); });
}

void overwrite(const std::string& path, std::size_t offset, const void* data, std::size_t size) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::pwrite(fd, data, size, static_cast<off_t>(offset)), static_cast<ssize_t>(size));
  ::close(fd);
}

// What such a program prints would go into the books.
TEST(Segment, is_no_standard_stream_of_a_program_without_one) {
  const TemporarySegment place;
  for (int made_or_joined = 0; made_or_joined < 2; ++made_or_joined) {
    Child child([&] {
      ::close(STDIN_FILENO);
      ::close(STDOUT_FILENO);
      ::close(STDERR_FILENO);
      const Segment segment(at(place), Books{}, no_steps);
      return ::fcntl(STDIN_FILENO, F_GETFD) < 0 && ::fcntl(STDOUT_FILENO, F_GETFD) < 0 &&
                     ::fcntl(STDERR_FILENO, F_GETFD) < 0
                 ? 0
                 : 1;
    });
    EXPECT_EQ(child.wait(), 0);
  }
}

TEST(Segment, is_made_whole_private_and_of_its_size) {
  const TemporarySegment place;
  const Segment segment(at(place), Books{}, no_steps);
  struct stat facts{};
  ASSERT_EQ(::stat(place.path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
  EXPECT_EQ(facts.st_size, static_cast<off_t>(sizeof(SegmentLayout)));
  EXPECT_GE(facts.st_blocks * 512, facts.st_size) << "a hole would be a SIGBUS when memory is full";
  EXPECT_TRUE(segment.intact());
}

TEST(Segment, of_another_version_is_refused_while_somebody_uses_it_and_then_replaced) {
  const TemporarySegment place;
  {
    const Segment segment(at(place), Books{}, no_steps);
  }
  SegmentHeader header;
  header.magic = segment_magic;
  header.version = segment_version + 1;
  header.checksum =
      checksum_of(std::as_bytes(std::span(&header, 1)).first(offsetof(SegmentHeader, checksum)));
  overwrite(place.path(), 0, &header, sizeof(header));
  const int theirs = ::open(place.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(theirs, 0);
  struct flock slot{};
  slot.l_type = F_WRLCK;
  slot.l_start = static_cast<off_t>(sizeof(SegmentLayout)) + 300;
  slot.l_len = 1;
  ASSERT_EQ(::fcntl(theirs, F_OFD_SETLK, &slot), 0);
  EXPECT_EQ(opening(place.path()), Status::unsupported);
  EXPECT_EQ(opening(place.path()), Status::unsupported);
  ::close(theirs);
  const Segment replaced(at(place), Books{}, no_steps);
  EXPECT_TRUE(replaced.intact());
}

// What somebody else does to the file at the moment when a client has mapped it.
struct AtMapping {
  std::function<void()> act;
  bool done = false;
};

NodeOptions acting(const TemporarySegment& place, AtMapping& at_mapping) {
  NodeOptions options = place.options();
  options.steps = {.at =
                       [](void* context, const char* step) {
                         auto& it = *static_cast<AtMapping*>(context);
                         if (std::strcmp(step, "mapped") == 0 && !std::exchange(it.done, true)) {
                           it.act();
                         }
                       },
                   .context = &at_mapping};
  return options;
}

TEST(Segment, that_is_removed_before_a_client_has_its_slot_is_left_at_once) {
  const TemporarySegment place;
  AtMapping removed;
  removed.act = [&] { ASSERT_EQ(::unlink(place.path().c_str()), 0); };
  Node node(acting(place, removed));
  EXPECT_TRUE(removed.done);
  node.add_device("gpu", 100);
  node.reserve({.device = 0, .size_bytes = 60});
  Node other(place.options());
  other.add_device("gpu", 100);
  EXPECT_EQ(status_of([&] { other.reserve({.device = 0, .size_bytes = 60}); }), Status::busy);
}

TEST(Segment, that_is_being_replaced_gives_no_slots_and_is_waited_for) {
  const TemporarySegment place;
  std::thread remover;
  AtMapping replaced;
  replaced.act = [&] {
    const int theirs = ::open(place.path().c_str(), O_RDWR | O_CLOEXEC);
    struct flock whole{};
    whole.l_type = F_WRLCK;
    ASSERT_EQ(::fcntl(theirs, F_OFD_SETLK, &whole), 0);
    remover = std::thread([&place, theirs] {
      ASSERT_EQ(::unlink(place.path().c_str()), 0);
      ::close(theirs);
    });
  };
  Node node(acting(place, replaced));
  remover.join();
  node.add_device("gpu", 100);
  node.reserve({.device = 0, .size_bytes = 60});
  Node other(place.options());
  other.add_device("gpu", 100);
  EXPECT_EQ(status_of([&] { other.reserve({.device = 0, .size_bytes = 60}); }), Status::busy);
}

TEST(Segment, of_the_group_that_only_its_maker_may_remove_is_refused) {
  constexpr gid_t group = 12345;
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can become another user";
  }
  const TemporarySegment place;
  const SegmentPlace shared{.path = place.path(), .group = group};
  {
    const Segment segment(shared, Books{}, no_steps);
  }
  const std::uint64_t garbage = 12345;
  overwrite(place.path(), 8, &garbage, sizeof(garbage));
  Child other([&] {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(group, group, group) != 0 ||
        ::setresuid(12345, 12345, 12345) != 0) {
      return 1;
    }
    const Status status = status_of([&] { const Segment segment(shared, Books{}, no_steps); });
    return status == Status::unsupported ? 0 : 2;
  });
  EXPECT_EQ(other.wait(), 0);
  const Segment replaced(shared, Books{}, no_steps);
  EXPECT_TRUE(replaced.intact());
}

TEST(Segment, of_another_size_or_a_damaged_header_is_replaced) {
  const TemporarySegment place;
  const Segment first(at(place), Books{}, no_steps);
  ASSERT_EQ(::truncate(place.path().c_str(), 5000), 0);
  EXPECT_FALSE(first.intact());
  const Segment second(at(place), Books{}, no_steps);
  EXPECT_TRUE(second.intact());
  const std::uint64_t garbage = 12345;
  overwrite(place.path(), 8, &garbage, sizeof(garbage));
  const Segment third(at(place), Books{}, no_steps);
  EXPECT_FALSE(second.intact());
  EXPECT_TRUE(third.intact());
}

TEST(Segment, that_others_could_have_written_is_refused) {
  const TemporarySegment place;
  {
    const Segment segment(at(place), Books{}, no_steps);
  }
  ASSERT_EQ(::chmod(place.path().c_str(), 0660), 0);
  EXPECT_EQ(opening(place.path()), Status::unsupported);
  ASSERT_EQ(::chmod(place.path().c_str(), 0600), 0);
  EXPECT_EQ(opening(place.path()), Status::ok);
  ASSERT_EQ(::unlink(place.path().c_str()), 0);
  ASSERT_EQ(::mkdir(place.path().c_str(), 0700), 0);
  EXPECT_NE(opening(place.path()), Status::ok);
  ASSERT_EQ(::rmdir(place.path().c_str()), 0);
  ASSERT_EQ(::symlink("/dev/null", place.path().c_str()), 0);
  EXPECT_EQ(opening(place.path()), Status::io_error);
}

TEST(Segment, of_another_user_is_refused) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can give files away";
  }
  const TemporarySegment place;
  {
    const Segment segment(at(place), Books{}, no_steps);
  }
  ASSERT_EQ(::chown(place.path().c_str(), 12345, 12345), 0);
  EXPECT_EQ(opening(place.path()), Status::unsupported);
}

TEST(Segment, without_room_is_an_error_and_leaves_nothing) {
  const TemporarySegment place;
  Steps steps;
  steps.allocate = [](void*, int, off_t) { return ENOSPC; };
  try {
    const Segment segment(at(place), Books{}, steps);
    FAIL() << "made without room";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::io_error);
    EXPECT_EQ(error.failure().errno_value, ENOSPC);
  }
  EXPECT_NE(::access(place.path().c_str(), F_OK), 0);
}

TEST(Segment, made_by_many_at_once_is_one) {
  const TemporarySegment place;
  std::vector<std::unique_ptr<Segment>> segments(8);
  std::vector<std::thread> threads;
  for (auto& segment : segments) {
    threads.emplace_back(
        [&] { segment = std::make_unique<Segment>(at(place), Books{}, no_steps); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& segment : segments) {
    EXPECT_TRUE(segment->intact());
  }
}

TEST(ClientSlot, ends_with_exec_and_death_and_not_with_a_forked_child) {
  const TemporarySegment place;
  Attachment ours(at(place), Books{}, no_steps);
  EXPECT_EQ(ours.client(), 0U);
  Child executes([&] {
    const Attachment theirs(at(place), Books{}, no_steps);
    ::usleep(200'000);
    ::execl("/bin/sleep", "sleep", "30", nullptr);
    return 1;
  });
  EXPECT_TRUE(eventually([&] { return ours.lives(1); }));
  EXPECT_TRUE(eventually([&] { return !ours.lives(1); })) << "exec";
  Child parent([&] {
    const Attachment theirs(at(place), Books{}, no_steps);
    if (::fork() == 0) {
      ::sleep(8);  // keeps the descriptor
      ::_exit(0);
    }
    ::pause();
    return 1;
  });
  EXPECT_TRUE(eventually([&] { return ours.lives(1); }));
  EXPECT_EQ(ours.user_pid_of(1), static_cast<std::uint64_t>(parent.pid()));
  ::usleep(100'000);
  parent.send(SIGKILL);
  const MonotonicTime killed = std::chrono::steady_clock::now();
  EXPECT_TRUE(eventually([&] { return !ours.lives(1); })) << "a zombie, and a child with its lock";
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(6));
}

TEST(ClientSlot, does_not_take_another_process_for_the_one_that_had_the_pid) {
  const ProcessFacts ours = process_facts(static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(ours.state, ProcessFacts::State::running);
  EXPECT_NE(ours.start_time, 0U);
  EXPECT_EQ(process_facts(0xffffffff).state, ProcessFacts::State::absent);

  const TemporarySegment place;
  const Attachment looks(at(place), Books{}, no_steps);
  const Segment segment(at(place), Books{}, no_steps);
  const ClientSlot slot(segment, std::nullopt);
  EXPECT_TRUE(looks.lives(slot.index()));
  // The same pid, started at another time: the byte is held by somebody, the process is not there.
  ClientIdentity& identity = segment.shared().identities.at(slot.index());
  identity.start_time += 1;
  identity.checksum = checksum_of(std::as_bytes(std::span(&identity, 1)).subspan(8));
  EXPECT_FALSE(looks.lives(slot.index()));
  // Damaged: nothing but the byte counts.
  identity.checksum += 1;
  EXPECT_TRUE(looks.lives(slot.index()));
}

TEST(ClientSlot, are_as_many_as_there_are_and_no_more) {
  const TemporarySegment place;
  std::vector<std::unique_ptr<Attachment>> all;
  for (std::uint32_t count = 0; count < clients_max; ++count) {
    all.push_back(std::make_unique<Attachment>(at(place), Books{}, no_steps));
  }
  EXPECT_EQ(status_of([&] { const Attachment more(at(place), Books{}, no_steps); }), Status::busy);
  all.erase(all.begin() + 7);
  EXPECT_EQ(Attachment(at(place), Books{}, no_steps).client(), 7U);
}

TEST(SegmentLock, excludes_threads_with_attachments_of_their_own) {
  const TemporarySegment place;
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      Attachment attachment(at(place), Books{}, no_steps);
      for (int turn = 0; turn < 2000; ++turn) {
        attachment.lock(deadline_in(20'000));
        // Not fetch_add: only the lock keeps updates from being lost.
        const int seen = count.load(std::memory_order_relaxed);
        std::this_thread::yield();
        count.store(seen + 1, std::memory_order_relaxed);
        attachment.unlock();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(count.load(), 8000);
}

TEST(SegmentLock, is_taken_from_the_dead) {
  const TemporarySegment place;
  Attachment ours(at(place), Books{}, no_steps);
  Child owner([&] {
    Attachment theirs(at(place), Books{}, no_steps);
    theirs.lock(deadline_in());
    return 0;
  });
  EXPECT_EQ(owner.wait(), 0);
  ours.lock(deadline_in());
  ours.unlock();
  ours.lock(deadline_in());
  ours.unlock();
}

TEST(SegmentLock, left_by_a_dead_owner_whose_slot_we_got_is_ours_to_take) {
  const TemporarySegment place;
  Child owner([&] {
    Attachment theirs(at(place), Books{}, no_steps);
    theirs.lock(deadline_in());
    return 0;
  });
  EXPECT_EQ(owner.wait(), 0);
  Attachment ours(at(place), Books{}, no_steps);
  EXPECT_EQ(ours.client(), 0U);
  ours.lock(deadline_in());
  ours.unlock();
}

TEST(SegmentLock, of_a_stopped_owner_is_refused_with_its_pid_and_goes_on_later) {
  const TemporarySegment place;
  Attachment ours(at(place), Books{}, no_steps);
  const Child owner([&] {
    Attachment theirs(at(place), Books{}, no_steps);
    theirs.lock(deadline_in());
    ::raise(SIGSTOP);
    theirs.unlock();
    ::pause();
    return 0;
  });
  owner.wait_stopped();
  const MonotonicTime start = std::chrono::steady_clock::now();
  try {
    ours.lock(deadline_in(200));
    FAIL() << "two owners";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::busy);
    EXPECT_NE(error.failure().detail.find(std::to_string(owner.pid())), std::string::npos);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  owner.send(SIGCONT);
  ours.lock(deadline_in(5000));
  ours.unlock();
}

TEST(SegmentLock, with_a_word_of_nonsense_is_taken) {
  const TemporarySegment place;
  Attachment ours(at(place), Books{}, no_steps);
  for (const std::uint32_t word : {0x7fff'ffffU, 0x8000'0000U, clients_max + 1, 200U, 1U}) {
    overwrite(place.path(), offsetof(SegmentLayout, lock), &word, sizeof(word));
    ours.lock(deadline_in());
    ours.unlock();
  }
}

}  // namespace
}  // namespace hippogriff::node
