// The queue pair under many threads, from any counter on, with controllers that err.
#include "array/controller_queue.hpp"
#include "array/queue_memory.hpp"
#include "testing/effort.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;

// A queue pair in ordinary memory.
class TestQueue {
 public:
  explicit TestQueue(std::uint32_t depth, std::uint64_t base = 0) {
    const QueueLayout layout = queue_layout(depth);
    shared_.resize(layout.shared_bytes() / sizeof(Line));
    own_.resize(layout.own_bytes() / sizeof(Line));
    pair_ = {reinterpret_cast<unsigned char*>(shared_.data()),
             reinterpret_cast<unsigned char*>(own_.data()),
             depth};
    initialize_shared(pair_, base, nullptr);
    initialize_own(reinterpret_cast<std::byte*>(own_.data()), depth, base);
  }

  [[nodiscard]] const QueuePair& pair() const { return pair_; }

  [[nodiscard]] Patience patience(std::uint64_t limit_ns = 60 * second_ns) {
    return {&words_, limit_ns};
  }

 private:
  struct alignas(128) Line {
    std::array<std::byte, 128> bytes;
  };

  std::vector<Line> shared_;
  std::vector<Line> own_;
  ReachedWords words_;
  QueuePair pair_;
};

// Answers each command with a number that only its submitter knows, in an order of its own.
class EchoController {
 public:
  EchoController(const QueuePair& pair, std::uint64_t base, std::uint64_t seed)
      : queue_(pair, base), random_(seed), thread_([this] { run(); }) {}

  ~EchoController() {
    stop_.store(true);
    thread_.join();
  }

  EchoController(const EchoController&) = delete;
  EchoController& operator=(const EchoController&) = delete;

  [[nodiscard]] std::uint64_t served() const { return served_.load(); }

 private:
  void run() {
    std::vector<Command> held;
    while (!stop_.load()) {
      for (std::uint32_t count = queue_.waiting(); count != 0; --count) {
        held.push_back(queue_.fetch());
      }
      if (held.empty()) {
        std::this_thread::yield();
        continue;
      }
      const std::size_t chosen = random_() % held.size();
      std::swap(held[chosen], held.back());
      const Command command = held.back();
      held.pop_back();
      const bool good = command.first_block() % 7 != 0;
      queue_.post(command.id,
                  {good ? NvmeStatus::success : NvmeStatus::unrecovered_read,
                   command.first_block() ^ command.prp1},
                  {command.first_block(), 5, 0x281});
      served_.fetch_add(1);
    }
  }

  ControllerQueue queue_;
  std::mt19937_64 random_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> served_{0};
  std::thread thread_;
};

// Submits a read and waits for its answer; `aborted` when the array has ended.
Outcome ask(const QueuePair& pair,
            std::uint64_t& ticket,
            BlockRange blocks,
            std::uint64_t memory,
            const Patience& patience) {
  if (!pair.take(Alone{}, 1, ticket, patience)) {
    return {NvmeStatus::aborted, 0};
  }
  pair.post(ticket, make_command(Opcode::read, blocks, memory));
  return pair.finish(Alone{}, ticket, 1, patience) ? pair.outcome(ticket)
                                                   : Outcome{NvmeStatus::aborted, 0};
}

// Submits `count` commands and checks that each answer is its own. Returns how many were not.
std::uint64_t submit_and_check(TestQueue& queue, std::uint64_t thread, std::uint64_t count) {
  const Patience patience = queue.patience();
  const QueuePair& pair = queue.pair();
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t block = (thread << 32U) + i;
    const std::uint64_t secret = spread(block + 1);
    std::uint64_t ticket = 0;
    const Outcome outcome = ask(pair, ticket, {block, 8}, secret, patience);
    if (outcome.status == NvmeStatus::aborted) {
      return wrong + 1;
    }
    const bool good = block % 7 != 0;
    wrong += outcome.result == (block ^ secret) ? 0 : 1;
    wrong += (outcome.status == NvmeStatus::success) == good ? 0 : 1;
    wrong += good || pair.failures()[pair.slot_of(ticket)].offset == block ? 0 : 1;
    pair.let_go(ticket);
  }
  return wrong;
}

struct Hammering {
  std::uint32_t depth;
  std::uint64_t base;
  std::uint32_t threads;
  int each = 160;  // commands
};

// Runs `work(thread)` on so many threads, thousands, when all are there, and waits for them.
void on_small_stacks(std::uint32_t count, const std::function<void(std::uint32_t)>& work) {
  constexpr std::size_t stack_bytes = std::size_t{256} << 10;

  struct Call {
    const std::function<void(std::uint32_t)>* work = nullptr;
    std::latch* all_there = nullptr;
    std::uint32_t thread = 0;
  };

  std::latch all_there(count);

  std::vector<Call> calls(count);
  std::vector<pthread_t> threads;
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, stack_bytes), 0);
  for (std::uint32_t thread = 0; thread < count; ++thread) {
    calls[thread] = {&work, &all_there, thread};
    const auto run = [](void* given) -> void* {
      const Call& call = *static_cast<Call*>(given);
      call.all_there->arrive_and_wait();
      (*call.work)(call.thread);
      return nullptr;
    };
    pthread_t made{};
    const int failure = pthread_create(&made, &attributes, run, &calls[thread]);
    EXPECT_EQ(failure, 0) << "thread " << thread;
    if (failure != 0) {
      all_there.count_down(count - thread);
      break;
    }
    threads.push_back(made);
  }
  for (const pthread_t thread : threads) {
    EXPECT_EQ(pthread_join(thread, nullptr), 0);
  }
  EXPECT_EQ(pthread_attr_destroy(&attributes), 0);
}

class QueueHammer : public ::testing::TestWithParam<Hammering> {};

TEST_P(QueueHammer, every_command_is_answered_once_and_to_its_own_thread) {
  const Hammering given = GetParam();
  // Of thousands of threads, ThreadSanitizer takes the most time.
  const int rounds = thread_sanitized ? (rounds_of(given.each) + 1) / 2 : rounds_of(given.each);
  const auto each = static_cast<std::uint64_t>(rounds);
  TestQueue queue(given.depth, given.base);
  std::atomic<std::uint64_t> wrong{0};
  std::uint64_t served = 0;
  {
    EchoController controller(queue.pair(), given.base, 12);
    on_small_stacks(given.threads, [&](std::uint32_t thread) {
      wrong.fetch_add(submit_and_check(queue, thread, each));
    });
    served = controller.served();
  }
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_EQ(served, each * given.threads);
  EXPECT_EQ(queue.patience().ended(), Ending::none);
}

INSTANTIATE_TEST_SUITE_P(
    Depths,
    QueueHammer,
    ::testing::Values(Hammering{.depth = 4, .base = 0, .threads = 64},
                      Hammering{.depth = 1024, .base = 0, .threads = 256},
                      Hammering{
                          .depth = 1024, .base = UINT64_MAX - 2000, .threads = 3000, .each = 8},
                      Hammering{.depth = 256, .base = UINT32_MAX - 300, .threads = 1500, .each = 4},
                      Hammering{.depth = 64, .base = UINT64_MAX - 5000, .threads = 96},
                      Hammering{.depth = 8, .base = UINT64_MAX - 3, .threads = 64},
                      Hammering{.depth = 256, .base = UINT32_MAX - 999, .threads = 128},
                      Hammering{.depth = 32, .base = UINT16_MAX - 9, .threads = 64}));

TEST(Queue, a_thread_can_keep_as_many_commands_under_way_as_there_are_slots) {
  TestQueue queue(16);
  const Patience patience = queue.patience();
  EchoController controller(queue.pair(), 0, 3);
  std::deque<std::uint64_t> tickets;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    if (tickets.size() == 16) {
      EXPECT_TRUE(queue.pair().finish(Alone{}, tickets.front(), 1, patience));
      EXPECT_EQ(queue.pair().outcome(tickets.front()).result, i - 16);
      queue.pair().let_go(tickets.front());
      tickets.pop_front();
    }
    std::uint64_t ticket = 0;
    ASSERT_TRUE(queue.pair().take(Alone{}, 1, ticket, patience));
    queue.pair().post(ticket, make_command(Opcode::read, {i, 1}, 0));
    for (Wait wait(patience); !queue.pair().urge(ticket);) {  // one slot of the ring stays empty
      queue.pair().drain(Alone{}, patience);
      ASSERT_TRUE(wait.again());
    }
    tickets.push_back(ticket);
  }
}

TEST(Queue, commands_have_the_bytes_of_nvme) {
  const Command command = make_command(Opcode::write, {0x123456789AULL, 256}, 0xABCDEF0012345678);
  std::array<std::uint8_t, 64> bytes{};
  std::memcpy(bytes.data(), &command, sizeof command);
  EXPECT_EQ(bytes[0], 0x01);
  EXPECT_EQ(bytes[4], 1);      // namespace
  EXPECT_EQ(bytes[24], 0x78);  // PRP1
  EXPECT_EQ(bytes[31], 0xAB);
  EXPECT_EQ(bytes[40], 0x9A);  // SLBA
  EXPECT_EQ(bytes[44], 0x12);
  EXPECT_EQ(bytes[48], 255);  // NLB, counted from zero
  EXPECT_EQ(bytes[49], 0);
  CompletionWord word;
  word.submission_head = 0x1234;
  word.command = 0x5678;
  word.phase = true;
  word.status = 0x281;
  EXPECT_EQ(pack(word), 0x0503'5678'0000'1234U);
  EXPECT_EQ(unpack(pack(word)).status, 0x281);
}

TEST(Queue, without_a_controller_a_wait_ends_by_its_time_and_ends_the_others) {
  TestQueue queue(4);
  const Patience patience = queue.patience(20'000'000);
  std::atomic<int> gave_up{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      std::uint64_t ticket = 0;
      const bool through =
          ask(queue.pair(), ticket, {0, 1}, 0, patience).status != NvmeStatus::aborted;
      gave_up.fetch_add(through ? 0 : 1);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(gave_up.load(), 8);
  EXPECT_EQ(patience.ended(), Ending::timed_out);
}

TEST(Queue, an_abort_ends_every_wait) {
  TestQueue queue(4);
  const Patience patience = queue.patience();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      std::uint64_t ticket = 0;
      static_cast<void>(ask(queue.pair(), ticket, {0, 1}, 0, patience));
    });
  }
  patience.end(Ending::stopped);
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(patience.ended(), Ending::stopped);
}

// Submits one command and posts what a broken controller would, `posts` times.
Ending after_posts(std::uint16_t identifier, int posts) {
  TestQueue queue(8);
  const Patience patience = queue.patience();
  std::uint64_t ticket = 0;
  EXPECT_TRUE(queue.pair().take(Alone{}, 1, ticket, patience));
  queue.pair().post(ticket, make_command(Opcode::read, {0, 1}, 0));
  EXPECT_TRUE(queue.pair().urge(ticket));
  ControllerQueue controller(queue.pair());
  EXPECT_EQ(controller.waiting(), 1U);
  static_cast<void>(controller.fetch());
  for (int i = 0; i < posts; ++i) {
    controller.post(identifier, {});
    queue.pair().drain(Alone{}, patience);
    if (i == 0 && queue.pair().completed(ticket)) {
      queue.pair().let_go(ticket);
    }
  }
  if (patience.ended() == Ending::broken) {
    EXPECT_EQ(unpack(patience.words->wrong.word).command, identifier);
    EXPECT_EQ(patience.words->wrong.position, static_cast<std::uint64_t>(posts - 1));
    EXPECT_EQ(patience.words->wrong.tail, 1U);
  }
  return patience.ended();
}

TEST(Queue, completions_that_nobody_asked_for_end_the_array_instead_of_reaching_somebody) {
  EXPECT_EQ(after_posts(0, 1), Ending::none);
  EXPECT_EQ(after_posts(0, 2), Ending::broken);
  EXPECT_EQ(after_posts(1, 1), Ending::broken);
  EXPECT_EQ(after_posts(8, 1), Ending::broken);
  EXPECT_EQ(after_posts(UINT16_MAX, 1), Ending::broken);
}

TEST(Queue, a_wait_hardly_counts_the_time_in_which_the_process_is_stopped) {
  constexpr std::uint64_t second = 1'000'000'000;
  ReachedWords words;
  const Patience patience{&words, 60 * second};
  Wait wait(patience);
  std::uint64_t now = 5 * second;
  EXPECT_TRUE(wait.goes_on_at(now));
  for (int look = 0; look < 10; ++look) {
    now += second / 2;
    EXPECT_TRUE(wait.goes_on_at(now)) << look;
  }
  now += 3600 * second;
  EXPECT_TRUE(wait.goes_on_at(now)) << "six seconds count so far";
  for (int look = 0; look < 54; ++look) {
    now += second;
    EXPECT_TRUE(wait.goes_on_at(now)) << look;
  }
  EXPECT_EQ(patience.ended(), Ending::none);
  EXPECT_FALSE(wait.goes_on_at(now + 1));
  EXPECT_EQ(patience.ended(), Ending::timed_out);
}

TEST(Queue, depths_that_are_no_power_of_two_or_out_of_bounds_are_refused) {
  for (const std::uint32_t depth : {0U, 1U, 2U, 3U, 12U, 1000U, 65536U, 1U << 31U}) {
    EXPECT_ANY_THROW(static_cast<void>(queue_layout(depth))) << depth;
  }
  EXPECT_NO_THROW(static_cast<void>(queue_layout(queue_depth_min)));
  EXPECT_NO_THROW(static_cast<void>(queue_layout(queue_depth_max)));
}

TEST(Queue, more_of_them_than_there_is_memory_for_are_refused) {
  EXPECT_NO_THROW(check_queues(1024, 1024));
  EXPECT_NO_THROW(check_queues(32, 32768));
  EXPECT_ANY_THROW(check_queues(33, 32768));
  EXPECT_ANY_THROW(check_queues(1025, 4));
}

}  // namespace
}  // namespace hippogriff::ondemand
