// A segment of a test's own, and child processes that use it.
#pragma once

#include "base/error.hpp"
#include "node/node.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <utility>

namespace hippogriff::testing {

// The path of a segment that no other test uses; removed at the end.
class TemporarySegment {
 public:
  TemporarySegment() {
    static std::atomic<int> count{0};
    path_ = "/dev/shm/hippogriff-test-" + std::to_string(::getpid()) + "-" +
            std::to_string(count.fetch_add(1));
    static_cast<void>(::unlink(path_.c_str()));
  }

  ~TemporarySegment() { static_cast<void>(::unlink(path_.c_str())); }

  TemporarySegment(const TemporarySegment&) = delete;
  TemporarySegment& operator=(const TemporarySegment&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] node::NodeOptions options(node::Policy policy = node::Policy::mmu) const {
    node::NodeOptions options;
    options.path = path_;
    options.policy = policy;
    return options;
  }

 private:
  std::string path_;
};

// A forked child that runs `body` and exits with what it returns, 99 after an exception. Killed and
// reaped with the object.
class Child {
 public:
  template <typename Body>
  explicit Child(Body body) : pid_(::fork()) {
    if (pid_ == 0) {
      int status = 99;
      try {
        status = body();
      } catch (const std::exception& error) {
        static_cast<void>(std::fprintf(stderr, "child: %s\n", error.what()));
      }
      ::_exit(status);
    }
  }

  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

  Child& operator=(Child&&) = delete;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  ~Child() {
    if (pid_ > 0) {
      send(SIGKILL);
      static_cast<void>(wait());
    }
  }

  [[nodiscard]] pid_t pid() const { return pid_; }

  void send(int signal) const { static_cast<void>(::kill(pid_, signal)); }

  // The exit status, or minus the signal that ended it.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Waits until it is stopped by SIGSTOP.
  void wait_stopped() const {
    int status = 0;
    static_cast<void>(::waitpid(pid_, &status, WUNTRACED));
  }

 private:
  pid_t pid_;
};

// Asks for up to ten seconds.
template <typename Condition>
bool eventually(Condition condition) {
  for (int turn = 0; turn < 2000; ++turn) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// The status that `call` fails with; ok when it does not.
template <typename Call>
Status status_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.failure().status;
  }
  return Status::ok;
}

}  // namespace hippogriff::testing
