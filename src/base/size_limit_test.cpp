// The signal of writes that are too large: whether it comes, and to whom.
#include "base/size_limit.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>

namespace hippogriff {
namespace {

// How a child ended that writes beyond its limit within `body`: its exit code, or minus the signal.
int end_of_child(const std::function<int(int fd)>& body) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::tmpfile(), &std::fclose);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{4096, 4096};
    const rlimit no_core{0, 0};
    static_cast<void>(setrlimit(RLIMIT_FSIZE, &limit));
    static_cast<void>(setrlimit(RLIMIT_CORE, &no_core));
    _exit(body(fileno(file.get())));
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int errno_of_write(int fd) {
  return pwrite(fd, "x", 1, 8192) < 0 ? errno : 0;
}

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of a signal's handler
volatile std::sig_atomic_t signals_seen = 0;

void count_signal(int /*number*/) {
  signals_seen = signals_seen + 1;
}

TEST(SizeLimit, a_write_beyond_it_ends_the_process_or_is_efbig_in_the_scope) {
  EXPECT_EQ(end_of_child(errno_of_write), -SIGXFSZ);
  EXPECT_EQ(end_of_child([](int fd) {
              const SizeLimitScope scope;
              return errno_of_write(fd);
            }),
            EFBIG);
}

TEST(SizeLimit, the_scope_leaves_no_signal_and_the_errno) {
  EXPECT_EQ(end_of_child([](int fd) {
              std::signal(SIGXFSZ, count_signal);
              {
                const SizeLimitScope outer;
                const SizeLimitScope inner;
                errno_of_write(fd);
              }
              if (errno != EFBIG || signals_seen != 0) {
                return 1;
              }
              errno_of_write(fd);  // the program's own
              return signals_seen == 1 ? 0 : 2;
            }),
            0);
}

TEST(SizeLimit, a_thread_that_blocks_the_signal_gets_efbig) {
  EXPECT_EQ(end_of_child([](int fd) {
              block_size_limit_signal();
              return errno_of_write(fd);
            }),
            EFBIG);
}

}  // namespace
}  // namespace hippogriff
