// What only the system's storage does: the environment, limits, full drives, block devices.
#include "base/size_limit.hpp"
#include "storage/storage.hpp"
#include "storage/uring_queue.hpp"
#include "testing/storage_fixture.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace hippogriff {
namespace {

// Sets a variable for a scope. Tests run in one thread.
// NOLINTBEGIN(concurrency-mt-unsafe)
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }

  ~Environment() { ::unsetenv(name_); }

  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  Environment(Environment&&) = delete;
  Environment& operator=(Environment&&) = delete;

 private:
  const char* name_;
};

// NOLINTEND(concurrency-mt-unsafe)

// Runs in a child process, whose limits may be changed; the exit code is how many checks failed.
int failures_in_child(const std::function<int()>& checks) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(checks());
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
    return 127;
  }
  return WEXITSTATUS(status);
}

TEST(SystemStorage, the_environment_chooses_the_queue) {
  {
    const Environment environment("HIPPOGRIFF_IO", "threads");
    EXPECT_EQ(make_system_storage()->queue_kind(), "threads (io_uring: not asked for)");
  }
  {
    const Environment environment("HIPPOGRIFF_IO", "uring-plain");
    const auto storage = make_system_storage();
    if (storage->queue_kind() == "io_uring") {
      EXPECT_EQ(storage->why_no_registered_buffers(), "not asked for");
      EXPECT_NE(storage->create_queue(1), nullptr);
    }
  }
  {
    const Environment environment("HIPPOGRIFF_IO", "aio");
    const Failure failure = failure_of([] { make_system_storage(); });
    EXPECT_EQ(failure.status, Status::invalid_argument);
    EXPECT_NE(failure.message().find("aio"), std::string::npos);
  }
  {
    const Environment environment("HIPPOGRIFF_IO", "uring");
    const auto storage = make_system_storage();
    if (why_no_io_uring().empty()) {
      EXPECT_EQ(storage->queue_kind(), "io_uring");
    } else {
      EXPECT_EQ(failure_of([&] { static_cast<void>(storage->create_queue(1)); }).status,
                Status::unsupported);
    }
  }
}

TEST(SystemStorage, direct_reads_of_a_disk_file_agree_with_buffered_ones) {
  const TemporaryFolder folder;
  const auto storage = make_system_storage(QueueKind::automatic);
  const auto file = storage->create(folder.file("f"));
  if (!file->facts().direct) {
    GTEST_SKIP() << file->facts().why_not_direct;
  }
  const std::uint32_t alignment = file->facts().direct_alignment;
  EXPECT_EQ(alignment & (alignment - 1), 0U);
  EXPECT_GE(alignment, 512U);
  write_all(*file, pattern(0, 65536 + 100), 0);
  AlignedMemory memory(std::size_t{alignment} * 4);
  const ssize_t count = ::pread(file->direct_fd(),
                                memory.bytes().data(),
                                memory.bytes().size(),
                                static_cast<off_t>(alignment));
  ASSERT_EQ(count, static_cast<ssize_t>(memory.bytes().size()));
  EXPECT_TRUE(is_pattern(memory.bytes(), alignment));
}

// What such a program prints would go into the file.
TEST(SystemStorage, files_are_no_standard_streams_of_a_program_without_them) {
  const TemporaryFolder folder;
  const int failures = failures_in_child([&] {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      ::close(stream);
    }
    const auto storage = make_system_storage(QueueKind::threads);
    const auto file = storage->create(folder.file("f"));
    const auto again = storage->open(folder.file("f"), FileAccess::read_write);
    int taken = 0;
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      taken += ::fcntl(stream, F_GETFD) >= 0 ? 1 : 0;
    }
    return taken;
  });
  EXPECT_EQ(failures, 0);
}

TEST(SystemStorage, a_write_beyond_the_size_limit_is_a_short_count_and_then_efbig) {
  const TemporaryFolder folder;
  for (const QueueKind kind : {QueueKind::automatic, QueueKind::threads}) {
    const int failures = failures_in_child([&] {
      const rlimit limit{100000, 100000};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return 100;
      }
      const auto storage = make_system_storage(kind);
      const auto file = storage->create(folder.file("f"));
      auto bytes = pattern(0, 65536);
      int wrong = file->write(bytes, 65536) == 100000 - 65536 ? 0 : 1;
      wrong +=
          failure_of([&] { static_cast<void>(file->write(bytes, 100000)); }).errno_value == EFBIG
              ? 0
              : 2;
      wrong += failure_of([&] { file->allocate({0, 200000}); }).errno_value == EFBIG ? 0 : 4;
      wrong += failure_of([&] { file->truncate(200000); }).errno_value == EFBIG ? 0 : 16;
      block_size_limit_signal();  // a ring may write here, on the thread that submits
      const auto queue = storage->create_queue(1);
      queue->submit({.kind = IoRequest::Kind::write,
                     .file = file.get(),
                     .direct = false,
                     .offset = 150000,
                     .memory = bytes,
                     .tag = 1});
      wrong += reap_one(*queue).result == -EFBIG ? 0 : 8;
      return wrong;
    });
    EXPECT_EQ(failures, 0);
  }
}

TEST(SystemStorage, a_full_file_system_is_enospc_with_path_and_offset) {
  const TemporaryFolder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "may not mount: " << ::strerrordesc_np(errno);
  }
  {
    const auto storage = make_system_storage(QueueKind::automatic);
    const auto file = storage->create(folder.file("f"));
    const auto bytes = pattern(0, 2 << 20);
    const std::size_t written = file->write(bytes, 0);
    EXPECT_EQ(written, 1U << 20);
    const Failure failure = failure_of([&] { static_cast<void>(file->write(bytes, written)); });
    EXPECT_EQ(failure.errno_value, ENOSPC);
    EXPECT_EQ(failure.offset, written);
    EXPECT_EQ(failure.object, folder.file("f"));
    EXPECT_EQ(failure_of([&] { file->allocate({0, 2 << 20}); }).errno_value, ENOSPC);
    EXPECT_EQ(storage->open(folder.file("f"), FileAccess::read)->facts().filesystem, "tmpfs");
  }
  EXPECT_EQ(::umount(folder.path().c_str()), 0);
}

TEST(SystemStorage, a_file_with_bytes_and_no_size_is_refused) {
  const auto storage = make_system_storage(QueueKind::automatic);
  const Failure failure =
      failure_of([&] { static_cast<void>(storage->open("/proc/self/status", FileAccess::read)); });
  EXPECT_EQ(failure.status, Status::invalid_argument);
  EXPECT_NE(failure.detail.find("no size"), std::string::npos) << failure.detail;
  const TemporaryFolder folder;
  static_cast<void>(storage->create(folder.file("empty")));
  EXPECT_EQ(storage->open(folder.file("empty"), FileAccess::read)->facts().size, 0U);
}

TEST(SystemStorage, a_block_device_has_its_size_and_reads) {
  std::string device;
  for (const char* path : {"/dev/vda", "/dev/sda", "/dev/nvme0n1"}) {
    const int fd = device.empty() ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
      device = path;
      ::close(fd);
    }
  }
  if (device.empty()) {
    GTEST_SKIP() << "no block device may be read here";
  }
  const auto storage = make_system_storage(QueueKind::automatic);
  const auto file = storage->open(device, FileAccess::read);
  const FileFacts& facts = file->facts();
  EXPECT_TRUE(facts.is_block_device);
  EXPECT_EQ(facts.filesystem, "block");
  EXPECT_EQ("/dev/" + facts.drive, device);
  EXPECT_GT(facts.size, 0U);
  EXPECT_EQ(facts.size, file->size_now());
  std::vector<std::byte> bytes(4096);
  EXPECT_EQ(read_all(*file, bytes, 0), 4096U);
  std::vector<std::byte> tail(4096);
  EXPECT_EQ(file->read(tail, facts.size - 100), 100U);
  file->allocate({0, facts.size});
  EXPECT_EQ(failure_of([&] { file->allocate({0, facts.size + 1}); }).errno_value, ENOSPC);
}

TEST(SystemStorage, descriptors_are_not_leaked) {
  const TemporaryFolder folder;
  const auto storage = make_system_storage(QueueKind::automatic);
  const auto open_count = [] {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      count += entry.path().empty() ? 0 : 1;
    }
    return count;
  };
  static_cast<void>(storage->queue_kind());
  const std::size_t before = open_count();
  {
    const auto file = storage->create(folder.file("f"));
    EXPECT_EQ(file->facts().direct, file->direct_fd() >= 0);
    const auto again = storage->adopt(file->fd(), FileAccess::read);
    EXPECT_EQ(again->facts().direct, again->direct_fd() >= 0);
    const auto queue = storage->create_queue(4);
    static_cast<void>(failure_of(
        [&] { static_cast<void>(storage->open(folder.path().string(), FileAccess::read)); }));
    EXPECT_GT(open_count(), before);
  }
  EXPECT_EQ(open_count(), before);
}

}  // namespace
}  // namespace hippogriff
