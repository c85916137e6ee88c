// Writing beyond the size that files may have (RLIMIT_FSIZE) is an error, EFBIG, and not the end of
// the program by SIGXFSZ, which it did not ask for.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace hippogriff {

inline sigset_t size_limit_signals() noexcept {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGXFSZ);
  return signals;
}

// For threads of our own, once.
inline void block_size_limit_signal() noexcept {
  const sigset_t signals = size_limit_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// For a scope on anybody's thread: the system sends the signal to the thread that writes. Costs a
// system call where there is no limit. Leaves errno as it is.
class SizeLimitScope {
 public:
  SizeLimitScope() noexcept {
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
      return;
    }
    const sigset_t signals = size_limit_signals();
    blocks_ =
        pthread_sigmask(SIG_BLOCK, &signals, &before_) == 0 && sigismember(&before_, SIGXFSZ) == 0;
  }

  ~SizeLimitScope() {
    if (!blocks_) {
      return;
    }
    const int error = errno;
    const sigset_t signals = size_limit_signals();
    const timespec at_once{};
    while (sigtimedwait(&signals, nullptr, &at_once) == SIGXFSZ || errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }

  SizeLimitScope(const SizeLimitScope&) = delete;
  SizeLimitScope& operator=(const SizeLimitScope&) = delete;
  SizeLimitScope(SizeLimitScope&&) = delete;
  SizeLimitScope& operator=(SizeLimitScope&&) = delete;

 private:
  sigset_t before_{};
  bool blocks_ = false;
};

}  // namespace hippogriff
