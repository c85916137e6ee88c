// What only the io_uring queue does: registration, sleeping waits, requests sent back, refusal.
#include "storage/uring_queue.hpp"

#include "storage/storage.hpp"
#include "testing/storage_fixture.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <string>
#include <utility>

namespace hippogriff {
namespace {

// A pipe as a File: its reads complete only when the test writes.
class Pipe final : public File {
 public:
  explicit Pipe(int flags) {
    if (::pipe2(ends_.data(), O_CLOEXEC | flags) != 0) {
      throw_io("make a pipe", "test", no_offset, errno);
    }
  }

  ~Pipe() override {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  Pipe(Pipe&&) = delete;
  Pipe& operator=(Pipe&&) = delete;

  [[nodiscard]] const FileFacts& facts() const override { return facts_; }

  [[nodiscard]] int fd() const override { return ends_[0]; }

  [[nodiscard]] int direct_fd() const override { return -1; }

  std::size_t read(std::span<std::byte> /*to*/, std::uint64_t /*offset*/) override { return 0; }

  std::optional<std::size_t> read_cached(std::span<std::byte> /*to*/,
                                         std::uint64_t /*offset*/) override {
    return std::nullopt;
  }

  std::size_t write(std::span<const std::byte> from, std::uint64_t /*offset*/) override {
    return static_cast<std::size_t>(::write(ends_[1], from.data(), from.size()));
  }

  std::optional<Residency> residency(Range /*range*/) override { return std::nullopt; }

  std::uint64_t size_now() override { return 0; }

  void allocate(Range /*range*/) override {}

  void truncate(std::uint64_t /*size*/) override {}

  void sync() override {}

  std::span<std::byte> map(Range /*range*/, FileAccess /*access*/) override { return {}; }

  void unmap(std::span<std::byte> /*mapping*/) noexcept override {}

 private:
  std::array<int, 2> ends_{};
  FileFacts facts_;
};

class UringQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_io_uring().empty()) {
      GTEST_SKIP() << why_no_io_uring();
    }
  }

  std::vector<std::byte> memory = std::vector<std::byte>(10);
};

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Makes io_uring_setup answer with an errno in this process from now on.
bool forbid_io_uring(unsigned errno_value) {
  constexpr unsigned io_uring_setup_number = 425;
  std::array<sock_filter, 4> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, io_uring_setup_number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errno_value),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// How the storage behaves without io_uring: 0, or the number of the check that failed.
int check_without_io_uring(unsigned errno_value, const std::string& reason) {
  if (!forbid_io_uring(errno_value)) {
    return 77;
  }
  const auto storage = make_system_storage(QueueKind::automatic);
  if (storage->queue_kind() != "threads (io_uring: " + reason + ")") {
    return 1;
  }
  const int fd = ::memfd_create("hippogriff", MFD_CLOEXEC);
  const auto file = storage->adopt(fd, FileAccess::read_write);
  auto bytes = pattern(0, 100);
  const auto queue = storage->create_queue(2, {});
  queue->submit({.kind = IoRequest::Kind::write,
                 .file = file.get(),
                 .direct = false,
                 .memory = bytes,
                 .tag = 3});
  if (reap_one(*queue).result != 100) {
    return 2;
  }
  const auto forced = make_system_storage(QueueKind::io_uring);
  const Failure failure = failure_of([&] { static_cast<void>(forced->create_queue(1, {})); });
  const Status expected = errno_value == ENOMEM ? Status::io_error : Status::unsupported;
  return failure.status == expected && std::cmp_equal(failure.errno_value, errno_value) ? 0 : 3;
}

TEST_F(UringQueueTest, memory_is_registered_where_it_may_be) {
  AlignedMemory large(1 << 20);
  const std::array<std::span<std::byte>, 2> buffers = {large.bytes().first(65536),
                                                       large.bytes().subspan(65536)};
  EXPECT_EQ(registered_buffer_count(*make_uring_queue(2, buffers)), 2U);
  // Nobody can pin what is not mapped: the queue goes on without.
  const std::array<std::span<std::byte>, 1> nowhere = {
      std::span(reinterpret_cast<std::byte*>(4096), 4096)};
  EXPECT_EQ(registered_buffer_count(*make_uring_queue(2, nowhere)), 0U);
}

TEST_F(UringQueueTest, waiting_does_not_use_the_processor) {
  Pipe pipe(0);
  const auto queue = make_uring_queue(1, {});
  queue->submit({.file = &pipe, .direct = false, .memory = memory, .tag = 5});
  IoCompletion completion;
  const double cpu_before = thread_cpu_seconds();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(queue->reap({&completion, 1}, std::chrono::milliseconds(300)), 0U);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(300));
  EXPECT_LT(thread_cpu_seconds() - cpu_before, 0.1);
  EXPECT_EQ(pipe.write(pattern(0, 10), 0), 10U);
  EXPECT_EQ(reap_one(*queue).tag, 5U);
  EXPECT_TRUE(is_pattern(memory, 0));
}

TEST_F(UringQueueTest, requests_that_never_complete_are_cancelled_at_the_end) {
  Pipe pipe(0);
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto queue = make_uring_queue(3, {});
    for (std::uint64_t i = 0; i < 3; ++i) {
      queue->submit({.file = &pipe, .direct = false, .memory = memory, .tag = i});
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(UringQueueTest, a_request_sent_back_with_eagain_is_tried_again_inside) {
  Pipe pipe(O_NONBLOCK);
  const auto queue = make_uring_queue(1, {});
  queue->submit({.file = &pipe, .direct = false, .memory = memory, .tag = 8});
  IoCompletion completion;
  EXPECT_EQ(queue->reap({&completion, 1}, std::chrono::milliseconds(30)), 0U);
  EXPECT_EQ(queue->in_flight(), 1U);
  EXPECT_EQ(pipe.write(pattern(0, 10), 0), 10U);
  completion = reap_one(*queue);
  EXPECT_EQ(completion.tag, 8U);
  EXPECT_EQ(completion.result, 10);
  EXPECT_TRUE(is_pattern(memory, 0));
}

TEST_F(UringQueueTest, signals_do_not_end_a_wait_early) {
  struct sigaction action{};
  action.sa_handler = [](int /*signal*/) {};
  struct sigaction before{};
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  Pipe pipe(0);
  const auto queue = make_uring_queue(1, {});
  queue->submit({.file = &pipe, .direct = false, .memory = memory, .tag = 1});
  ::ualarm(20000, 20000);
  IoCompletion completion;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(queue->reap({&completion, 1}, std::chrono::milliseconds(150)), 0U);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(150));
  ::ualarm(0, 0);
  ASSERT_EQ(::sigaction(SIGALRM, &before, nullptr), 0);
}

void expect_threads(unsigned errno_value, const std::string& reason) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::_exit(check_without_io_uring(errno_value, reason));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "seccomp filters are forbidden here";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(WithoutIoUring, threads_serve_and_say_why) {
  expect_threads(EPERM, "Operation not permitted");
}

// As kernels before 5.12 answer.
TEST(WithoutIoUring, threads_serve_where_locked_memory_is_short) {
  expect_threads(ENOMEM, locked_memory_refusal);
}

}  // namespace
}  // namespace hippogriff
