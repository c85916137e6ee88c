// The fault wrapper does what its plan says, and nothing else.
#include "testing/faulty_storage.hpp"

#include "storage/uring_queue.hpp"
#include "testing/storage_fixture.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

namespace hippogriff {
namespace {

// Over registered buffers, plain ones, and threads.
class FaultyStorageTest : public ::testing::TestWithParam<QueueKind> {
 protected:
  void SetUp() override {
    if (GetParam() != QueueKind::threads && !why_no_io_uring().empty()) {
      GTEST_SKIP() << why_no_io_uring();
    }
    target = storage->create(home.file("f"));
    write_all(*target, pattern(0, 65536), 0);
    queue = storage->create_queue(8);
    for (std::uint32_t use = 0; use < RegisteredBuffers::uses_min; ++use) {
      submit(0);
      ASSERT_EQ(reap_one(*queue).result, 16384);
    }
  }

  void submit(std::uint64_t tag, IoRequest::Kind kind = IoRequest::Kind::read) {
    queue->submit({.kind = kind,
                   .file = target.get(),
                   .direct = false,
                   .memory = memory,
                   .tag = tag,
                   .buffer = memory});
  }

  TemporaryFolder home{"/dev/shm"};
  std::shared_ptr<FaultPlan> plan = std::make_shared<FaultPlan>();
  std::shared_ptr<Storage> storage = make_faulty_storage(make_system_storage(GetParam()), plan);
  std::shared_ptr<File> target;
  std::unique_ptr<IoQueue> queue;
  std::vector<std::byte> memory = std::vector<std::byte>(16384);
};

TEST_P(FaultyStorageTest, the_nth_operation_fails_and_the_next_does_not) {
  plan->add({.point = FaultPoint::read, .after = 1, .times = 1, .errno_value = EIO});
  EXPECT_EQ(target->read(memory, 0), memory.size());
  const Failure failure = failure_of([&] { static_cast<void>(target->read(memory, 100)); });
  EXPECT_EQ(failure.errno_value, EIO);
  EXPECT_EQ(failure.offset, 100U);
  EXPECT_EQ(failure.object, home.file("f"));
  EXPECT_EQ(target->read(memory, 0), memory.size());
  EXPECT_EQ(plan->struck(), 1U);
  EXPECT_EQ(plan->seen(FaultPoint::read), 3U);
}

TEST_P(FaultyStorageTest, a_shortened_read_spoils_what_it_does_not_tell) {
  plan->add({.point = FaultPoint::read, .kind = FaultKind::shorten, .bytes = 1000});
  EXPECT_EQ(target->read(memory, 0), 1000U);
  EXPECT_TRUE(is_pattern(std::span(memory).first(1000), 0));
  EXPECT_EQ(memory[1000], std::byte{0xDB});
  EXPECT_EQ(memory.back(), std::byte{0xDB});
}

TEST_P(FaultyStorageTest, queued_requests_fail_and_shorten_as_results) {
  plan->add({.point = FaultPoint::queued_read, .errno_value = EAGAIN});
  plan->add({.point = FaultPoint::queued_read, .kind = FaultKind::shorten, .bytes = 4096});
  submit(1);
  EXPECT_EQ(reap_one(*queue).result, -EAGAIN);
  submit(2);
  EXPECT_EQ(reap_one(*queue).result, 4096);
  EXPECT_TRUE(is_pattern(std::span(memory).first(4096), 0));
  EXPECT_EQ(memory[4096], std::byte{0xDB});
  submit(3);
  EXPECT_EQ(reap_one(*queue).result, 16384);
  EXPECT_EQ(queue->in_flight(), 0U);
}

TEST_P(FaultyStorageTest, a_held_completion_comes_after_release_only) {
  plan->add({.point = FaultPoint::queued_read, .kind = FaultKind::hold});
  submit(1);
  submit(2);
  EXPECT_EQ(reap_one(*queue).tag, 2U);
  IoCompletion completion;
  EXPECT_EQ(queue->reap({&completion, 1}, std::chrono::milliseconds(30)), 0U);
  EXPECT_EQ(queue->in_flight(), 1U);
  std::thread other([&] { plan->release(); });
  EXPECT_EQ(reap_one(*queue).tag, 1U);
  other.join();
}

TEST_P(FaultyStorageTest, a_queue_with_a_held_completion_can_be_destroyed) {
  plan->add({.point = FaultPoint::queued_read, .kind = FaultKind::hold});
  submit(1);
  queue.reset();
}

TEST_P(FaultyStorageTest, a_delayed_completion_is_late) {
  plan->add({.point = FaultPoint::queued_read,
             .kind = FaultKind::delay,
             .delay = std::chrono::milliseconds(40)});
  const auto begin = std::chrono::steady_clock::now();
  submit(1);
  EXPECT_EQ(reap_one(*queue).result, 16384);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(40));
}

TEST_P(FaultyStorageTest, a_size_limit_cuts_writes_and_then_is_enospc) {
  plan->limit_size(70000);
  EXPECT_EQ(target->write(memory, 60000), 10000U);
  EXPECT_EQ(failure_of([&] { static_cast<void>(target->write(memory, 70000)); }).errno_value,
            ENOSPC);
  EXPECT_EQ(target->write(std::span(memory).first(10), 69990), 10U);
  queue->submit({.kind = IoRequest::Kind::write,
                 .file = target.get(),
                 .direct = false,
                 .offset = 69999,
                 .memory = memory,
                 .tag = 1});
  EXPECT_EQ(reap_one(*queue).result, 1);
  queue->submit({.kind = IoRequest::Kind::write,
                 .file = target.get(),
                 .direct = false,
                 .offset = 70001,
                 .memory = memory,
                 .tag = 2});
  EXPECT_EQ(reap_one(*queue).result, -ENOSPC);
}

TEST_P(FaultyStorageTest, the_file_is_cut_before_a_read) {
  plan->add({.point = FaultPoint::read, .kind = FaultKind::truncate_file, .bytes = 300});
  EXPECT_EQ(target->read(memory, 0), 300U);
  EXPECT_EQ(target->size_now(), 300U);
}

TEST_P(FaultyStorageTest, residency_lies_as_told) {
  plan->add({.point = FaultPoint::residency, .kind = FaultKind::residency_unknown});
  plan->add({.point = FaultPoint::residency, .kind = FaultKind::residency_wrong, .fraction = 0.25});
  EXPECT_EQ(target->residency({0, 65536}), std::nullopt);
  EXPECT_EQ(target->residency({0, 65536}).value_or(Residency{}).resident_bytes, 16384U);
  EXPECT_EQ(target->residency({0, 65536}).value_or(Residency{}).resident_bytes, 65536U);
}

TEST_P(FaultyStorageTest, every_other_point_can_fail) {
  const auto errno_at = [&](FaultPoint point, const std::function<void()>& call) {
    plan->add({.point = point, .errno_value = ENOMEM});
    return failure_of(call).errno_value;
  };
  std::array<IoCompletion, 1> completions{};
  const std::string path = home.file("f");
  EXPECT_EQ(errno_at(FaultPoint::open, [&] { static_cast<void>(storage->create(path)); }), ENOMEM);
  EXPECT_EQ(errno_at(FaultPoint::write, [&] { static_cast<void>(target->write(memory, 0)); }),
            ENOMEM);
  EXPECT_EQ(
      errno_at(FaultPoint::read_cached, [&] { static_cast<void>(target->read_cached(memory, 0)); }),
      ENOMEM);
  EXPECT_EQ(errno_at(FaultPoint::submit, [&] { submit(1); }), ENOMEM);
  EXPECT_EQ(
      errno_at(FaultPoint::reap, [&] { queue->reap(completions, std::chrono::nanoseconds(0)); }),
      ENOMEM);
  EXPECT_EQ(errno_at(FaultPoint::size, [&] { static_cast<void>(target->size_now()); }), ENOMEM);
  EXPECT_EQ(errno_at(FaultPoint::allocate, [&] { target->allocate({0, 1}); }), ENOMEM);
  EXPECT_EQ(errno_at(FaultPoint::truncate, [&] { target->truncate(1); }), ENOMEM);
  EXPECT_EQ(errno_at(FaultPoint::sync, [&] { target->sync(); }), ENOMEM);
  EXPECT_EQ(errno_at(FaultPoint::map,
                     [&] { static_cast<void>(target->map({0, 4096}, FileAccess::read)); }),
            ENOMEM);
  EXPECT_EQ(errno_at(FaultPoint::rename, [&] { storage->rename(path, path + "2"); }), ENOMEM);
  EXPECT_EQ(
      errno_at(FaultPoint::create_queue, [&] { static_cast<void>(storage->create_queue(1)); }),
      ENOMEM);
  EXPECT_EQ(plan->struck(), 12U);
  EXPECT_EQ(target->size_now(), 65536U);
}

TEST_P(FaultyStorageTest, random_faults_repeat_with_their_seed) {
  const auto run = [&](std::uint64_t seed) {
    plan->randomize({.seed = seed, .error = 0.2, .try_again = 0.2, .shorten = 0.2, .delay = 0.05});
    std::vector<std::int64_t> results;
    for (std::uint64_t i = 0; i < 100; ++i) {
      submit(i);
      results.push_back(reap_one(*queue).result);
    }
    return results;
  };
  const auto first = run(7);
  EXPECT_EQ(run(7), first);
  EXPECT_NE(run(8), first);
  EXPECT_GT(std::count(first.begin(), first.end(), -EIO), 5);
  EXPECT_GT(std::count(first.begin(), first.end(), -EAGAIN), 5);
  EXPECT_GT(std::count(first.begin(), first.end(), 16384), 5);
  plan->clear();
  EXPECT_EQ(target->read(memory, 0), memory.size());
}

std::string queue_name(const ::testing::TestParamInfo<QueueKind>& info) {
  switch (info.param) {
    case QueueKind::plain_io_uring:
      return "plain_io_uring";
    case QueueKind::threads:
      return "threads";
    default:
      return "io_uring";
  }
}

INSTANTIATE_TEST_SUITE_P(System,
                         FaultyStorageTest,
                         ::testing::Values(QueueKind::io_uring,
                                           QueueKind::plain_io_uring,
                                           QueueKind::threads),
                         queue_name);

}  // namespace
}  // namespace hippogriff
