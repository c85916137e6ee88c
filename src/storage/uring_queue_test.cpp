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
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <fstream>
#include <set>
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

  std::optional<std::size_t> read_cached_pieces(std::span<const iovec> /*to*/,
                                                std::uint64_t /*offset*/,
                                                PageCache /*expected*/) override {
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

std::shared_ptr<File> patterned_memory(std::size_t size_bytes) {
  const int fd = ::memfd_create("hippogriff", MFD_CLOEXEC);
  auto file = make_system_storage(QueueKind::threads)->adopt(fd, FileAccess::read_write);
  ::close(fd);
  EXPECT_EQ(file->write(pattern(0, size_bytes), 0), size_bytes);
  return file;
}

// Fills the memory from the file's beginning.
void read_into(IoQueue& queue,
               File& file,
               std::span<std::byte> memory,
               std::span<std::byte> buffer) {
  const std::size_t wanted = std::min<std::size_t>(memory.size(), file.size_now());
  std::memset(memory.data(), 0, memory.size());
  queue.submit({.file = &file, .direct = false, .memory = memory, .buffer = buffer});
  EXPECT_EQ(reap_one(queue).result, static_cast<std::int64_t>(wanted));
  EXPECT_TRUE(is_pattern(memory.first(wanted), 0));
}

// What this process's registered buffers have pinned, as the kernel counts it.
std::uint64_t pinned_kibibytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t size = 0;
    if (word == "VmPin:" && status >> size) {
      return size;
    }
  }
  ADD_FAILURE() << "/proc does not tell what is pinned";
  return 0;
}

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

constexpr unsigned io_uring_setup_number = 425;
constexpr unsigned io_uring_register_number = 427;

// Makes a system call answer with an errno in this process from now on.
bool forbid(unsigned call_number, unsigned errno_value) {
  std::array<sock_filter, 4> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call_number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errno_value),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// How the storage behaves without io_uring: 0, or the number of the check that failed.
int check_without_io_uring(unsigned errno_value, const std::string& reason) {
  if (!forbid(io_uring_setup_number, errno_value)) {
    return 77;
  }
  const auto storage = make_system_storage(QueueKind::automatic);
  if (storage->queue_kind() != "threads (io_uring: " + reason + ")") {
    return 1;
  }
  const int fd = ::memfd_create("hippogriff", MFD_CLOEXEC);
  const auto file = storage->adopt(fd, FileAccess::read_write);
  auto bytes = pattern(0, 100);
  const auto queue = storage->create_queue(2);
  queue->submit({.kind = IoRequest::Kind::write,
                 .file = file.get(),
                 .direct = false,
                 .memory = bytes,
                 .tag = 3});
  if (reap_one(*queue).result != 100) {
    return 2;
  }
  const auto forced = make_system_storage(QueueKind::io_uring);
  const Failure failure = failure_of([&] { static_cast<void>(forced->create_queue(1)); });
  const Status expected = errno_value == ENOMEM ? Status::io_error : Status::unsupported;
  return failure.status == expected && std::cmp_equal(failure.errno_value, errno_value) ? 0 : 3;
}

TEST_F(UringQueueTest, a_buffer_is_registered_once_it_was_used_often) {
  if (const std::string why_not = why_no_registered_buffers(); !why_not.empty()) {
    GTEST_SKIP() << why_not;
  }
  const auto file = patterned_memory(65536);
  AlignedMemory large(1 << 20);
  const auto first = large.bytes().first(65536);
  const auto second = large.bytes().subspan(65536);
  const auto queue = make_uring_queue(1);
  for (std::uint32_t use = 1; use < RegisteredBuffers::uses_min; ++use) {
    read_into(*queue, *file, first.first(100), first);
    read_into(*queue, *file, second.first(100), second);
  }
  EXPECT_EQ(registered_buffer_count(*queue), 0U);
  read_into(*queue, *file, first.subspan(4000, 300), first);
  EXPECT_EQ(registered_buffer_count(*queue), 1U);
  read_into(*queue, *file, second, second);
  read_into(*queue, *file, first, first);
  EXPECT_EQ(registered_buffer_count(*queue), 2U);
  // Memory that is not in the buffer it names, and more buffers than there is room for, are plain.
  read_into(*queue, *file, second.first(500), first);
  std::vector<std::vector<std::byte>> many(300, std::vector<std::byte>(10));
  for (auto& each : many) {
    for (std::uint32_t use = 0; use < RegisteredBuffers::uses_min; ++use) {
      read_into(*queue, *file, each, each);
    }
  }
  EXPECT_EQ(registered_buffer_count(*queue), 256U);
}

TEST_F(UringQueueTest, memory_that_cannot_be_registered_is_used_as_it_is) {
  const auto file = patterned_memory(65536);
  // Pages of a file on a drive may not be pinned for long.
  const TemporaryFolder folder;
  const auto storage = make_system_storage(QueueKind::io_uring);
  const auto mapped = storage->create(folder.file("mapped"));
  mapped->truncate(65536);
  const auto mapping = mapped->map({0, 65536}, FileAccess::read_write);
  const auto refusal = std::make_shared<std::atomic<int>>(0);
  const auto queue = make_uring_queue(1, {.refusal = refusal});
  for (int use = 0; use < 5; ++use) {
    read_into(*queue, *file, mapping, mapping);
  }
  EXPECT_EQ(registered_buffer_count(*queue) == 0, refusal->load() != 0);
  mapped->unmap(mapping);
}

TEST_F(UringQueueTest, buffers_are_let_go_with_the_queue_and_not_later) {
  const auto file = patterned_memory(65536);
  AlignedMemory large(1 << 20);
  const std::uint64_t before = pinned_kibibytes();
  for (int round = 0; round < 20; ++round) {
    const auto queue = make_uring_queue(1);
    for (std::uint32_t use = 0; use < RegisteredBuffers::uses_min; ++use) {
      read_into(*queue, *file, large.bytes(), large.bytes());
    }
    EXPECT_EQ(pinned_kibibytes() - before, registered_buffer_count(*queue) * 1024);
  }
  EXPECT_EQ(pinned_kibibytes(), before);
}

TEST_F(UringQueueTest, waiting_does_not_use_the_processor) {
  Pipe pipe(0);
  const auto queue = make_uring_queue(1);
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
    const auto queue = make_uring_queue(3);
    for (std::uint64_t i = 0; i < 3; ++i) {
      queue->submit({.file = &pipe, .direct = false, .memory = memory, .tag = i});
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(UringQueueTest, prepared_requests_begin_together) {
  Pipe first(0);
  Pipe second(0);
  const auto queue = make_uring_queue(4);
  std::vector<std::byte> other(10);
  EXPECT_EQ(first.write(pattern(0, 10), 0), 10U);
  EXPECT_EQ(second.write(pattern(0, 10), 0), 10U);
  queue->prepare({.file = &first, .direct = false, .memory = memory, .tag = 1});
  queue->prepare({.file = &second, .direct = false, .memory = other, .tag = 2});
  EXPECT_FALSE(is_pattern(memory, 0));  // not begun: a pipe that has bytes gives them at once
  EXPECT_EQ(queue->in_flight(), 2U);
  queue->submit_prepared();
  EXPECT_TRUE(is_pattern(memory, 0));
  EXPECT_TRUE(is_pattern(other, 0));
  EXPECT_EQ(reap_one(*queue).tag + reap_one(*queue).tag, 3U);
}

TEST_F(UringQueueTest, a_request_sent_back_with_eagain_is_tried_again_inside) {
  Pipe pipe(O_NONBLOCK);
  const auto queue = make_uring_queue(1);
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
  const auto queue = make_uring_queue(1);
  queue->submit({.file = &pipe, .direct = false, .memory = memory, .tag = 1});
  ::ualarm(20000, 20000);
  IoCompletion completion;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(queue->reap({&completion, 1}, std::chrono::milliseconds(150)), 0U);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(150));
  ::ualarm(0, 0);
  ASSERT_EQ(::sigaction(SIGALRM, &before, nullptr), 0);
}

// The next calls of io_uring_enter that submit something are refused in this process.
struct Refusals {
  std::atomic<int> left{0};
  std::atomic<int> errno_value{0};
};

Refusals& refusals() {
  static Refusals of_this_process;
  return of_this_process;
}

constexpr unsigned io_uring_enter_number = 426;
constexpr std::uint32_t let_pass = 0x7711;  // as the call's last argument, which it does not use

void carry_out_or_refuse(int /*signal*/, siginfo_t* /*info*/, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (refusals().left.load() > 0) {
    --refusals().left;
    registers[REG_RAX] = -refusals().errno_value.load();
    return;
  }
  const long result = ::syscall(io_uring_enter_number,
                                registers[REG_RDI],
                                registers[REG_RSI],
                                registers[REG_RDX],
                                registers[REG_R10],
                                registers[REG_R8],
                                let_pass);
  registers[REG_RAX] = result < 0 ? -errno : result;
}

bool may_refuse_enter() {
  struct sigaction action{};
  action.sa_sigaction = carry_out_or_refuse;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  std::array<sock_filter, 8> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, io_uring_enter_number, 0, 5),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[5])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, let_pass, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{program.size(), program.data()};
  return ::sigaction(SIGSYS, &action, nullptr) == 0 &&
         ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// A ring all of whose entries were refused: they complete with the errno, and the queue goes on.
int check_refused_entries(unsigned errno_value, const std::string& /*reason*/) {
  constexpr std::size_t depth = 8;
  ::alarm(60);
  if (!may_refuse_enter()) {
    return 77;
  }
  refusals().errno_value = static_cast<int>(errno_value);
  const auto file = patterned_memory(depth * 10);
  std::vector<std::byte> memory(depth * 10);
  const auto queue = make_uring_queue(depth);
  const auto round = [&](std::int64_t result) {
    std::set<std::uint64_t> tags;
    for (std::uint64_t tag = 0; tag < depth; ++tag) {
      queue->prepare({.file = file.get(),
                      .direct = false,
                      .offset = tag * 10,
                      .memory = std::span(memory).subspan(tag * 10, 10),
                      .tag = tag});
    }
    while (tags.size() < depth) {
      const IoCompletion completion = reap_one(*queue);
      EXPECT_EQ(completion.result, result);
      EXPECT_TRUE(tags.insert(completion.tag).second);
    }
  };
  refusals().left = 1;
  round(-static_cast<std::int64_t>(errno_value));
  EXPECT_FALSE(is_pattern(memory, 0));
  round(10);
  EXPECT_TRUE(is_pattern(memory, 0));
  // What never completes is cancelled, though the ring is full of refused entries.
  Pipe pipe(0);
  queue->submit({.file = &pipe, .direct = false, .memory = memory});
  for (std::uint64_t tag = 1; tag < depth; ++tag) {
    queue->prepare({.file = file.get(), .direct = false, .memory = memory, .tag = tag});
  }
  refusals().left = 1;
  queue->submit_prepared();
  return ::testing::Test::HasFailure() ? 1 : 0;
}

// How it behaves where io_uring is there and registers nothing.
int check_without_registration(unsigned errno_value, const std::string& reason) {
  if (!forbid(io_uring_register_number, errno_value)) {
    return 77;
  }
  const auto storage = make_system_storage(QueueKind::automatic);
  const auto file = patterned_memory(65536);
  const auto queue = storage->create_queue(1);
  std::vector<std::byte> memory(65536);
  for (int use = 0; use < 5; ++use) {
    read_into(*queue, *file, memory, memory);
  }
  if (storage->queue_kind() != "io_uring" || registered_buffer_count(*queue) != 0) {
    return 1;
  }
  return storage->why_no_registered_buffers() == reason && !::testing::Test::HasFailure() ? 0 : 2;
}

using Check = int(unsigned errno_value, const std::string& reason);

void expect_in_a_child(Check* check, unsigned errno_value, const std::string& reason) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::_exit(check(errno_value, reason));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "seccomp filters are forbidden here";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(UringQueueTest, what_the_kernel_refuses_completes_with_its_errno_and_the_queue_goes_on) {
  expect_in_a_child(check_refused_entries, ENOMEM, "");
}

TEST(WithoutIoUring, threads_serve_and_say_why) {
  expect_in_a_child(&check_without_io_uring, EPERM, "Operation not permitted");
}

// As kernels before 5.12 answer.
TEST(WithoutIoUring, threads_serve_where_locked_memory_is_short) {
  expect_in_a_child(&check_without_io_uring, ENOMEM, locked_memory_refusal);
}

TEST_F(UringQueueTest, where_nothing_is_registered_requests_are_plain_and_it_says_why) {
  expect_in_a_child(&check_without_registration, ENOMEM, locked_memory_refusal);
  expect_in_a_child(&check_without_registration, EINVAL, "the kernel is older than 5.19");
  expect_in_a_child(&check_without_registration, EOPNOTSUPP, "Operation not supported");
}

// As whoever may lock no memory beyond its limit, which is none at first.
int check_registration_once_there_is_room() {
  constexpr uid_t nobody = 65534;
  rlimit limit{};
  if ((::geteuid() == 0 && ::setresuid(nobody, nobody, nobody) != 0) ||
      ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_max < 1U << 20U) {
    return 77;
  }
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  const rlimit enough{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  const auto file = patterned_memory(4096);
  AlignedMemory memory(4096);
  const auto refusal = std::make_shared<std::atomic<int>>(0);
  const auto queue = make_uring_queue(1, {.refusal = refusal});
  const auto use = [&](std::uint32_t times) {
    for (std::uint32_t count = 0; count < times; ++count) {
      read_into(*queue, *file, memory.bytes(), memory.bytes());
    }
  };
  if (::setrlimit(RLIMIT_MEMLOCK, &none) != 0) {
    return 77;
  }
  use(RegisteredBuffers::uses_min);
  if (refusal->load() != ENOMEM) {
    return 77;  // this system counts otherwise
  }
  if (::setrlimit(RLIMIT_MEMLOCK, &enough) != 0) {
    return 1;
  }
  use(RegisteredBuffers::pause_uses_min);
  if (registered_buffer_count(*queue) != 0) {
    return 2;
  }
  use(1);
  return registered_buffer_count(*queue) == 1 && refusal->load() == 0 ? 0 : 3;
}

TEST_F(UringQueueTest, memory_is_registered_later_where_there_was_no_room_for_it) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::_exit(check_registration_once_there_is_room());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "locked memory has no limit that this test may change";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace hippogriff
