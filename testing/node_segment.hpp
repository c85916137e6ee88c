// A segment of a test's own, child processes that use it, and what tests ask of any node.
#pragma once

#include "base/error.hpp"
#include "node/node.hpp"
#include "testing/eventually.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace hippogriff::testing {

// What a variable says, of a program that has one thread still.
inline std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no thread yet
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

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

// What children tell by a pipe.
class Answers {
 public:
  Answers() { EXPECT_EQ(::pipe(ends_.data()), 0); }

  ~Answers() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  [[nodiscard]] int to() const { return ends_[1]; }

  // So many characters.
  [[nodiscard]] std::string next(std::size_t count) const {
    std::string text;
    for (char letter = 0; text.size() < count && ::read(ends_[0], &letter, 1) == 1;) {
      text += letter;
    }
    return text;
  }

 private:
  std::array<int, 2> ends_{};
};

// Does something once at a step of an operation.
struct AtStep {
  std::string_view place;
  std::function<void()> act;
  bool done = false;

  [[nodiscard]] node::Steps steps() {
    return {.at =
                [](void* context, const char* at) {
                  auto& self = *static_cast<AtStep*>(context);
                  if (!self.done && self.place == at) {
                    self.done = true;
                    self.act();
                  }
                },
            .context = this};
  }
};

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

inline constexpr std::chrono::milliseconds no_wait{0};
inline constexpr std::chrono::milliseconds long_wait{20'000};
// Less than a long wait, and much more than anything takes: also on a loaded machine.
inline constexpr std::chrono::milliseconds soon{10'000};

inline node::Request request(std::uint64_t size,
                             std::chrono::milliseconds timeout = no_wait,
                             std::int32_t priority = 0) {
  return {.device = 0, .size_bytes = size, .priority = priority, .timeout = timeout};
}

inline std::uint64_t held(node::NodeClient& node) {
  std::uint64_t sum = 0;
  for (const auto& reservation : node.view().reservations) {
    sum += reservation.record.size_bytes;
  }
  return sum;
}

inline std::size_t waiting(node::NodeClient& node) {
  std::size_t count = 0;
  for (const auto& reservation : node.view().reservations) {
    count += reservation.record.waits() ? 1U : 0U;
  }
  return count;
}

}  // namespace hippogriff::testing
