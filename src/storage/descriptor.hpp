// A file descriptor that closes itself, and the loop around calls that signals interrupt.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hippogriff {

// Owns a descriptor, or borrows one that it never closes. Not thread-safe.
class Descriptor {
 public:
  Descriptor() = default;

  explicit Descriptor(int fd) : fd_(fd) {}

  static Descriptor borrowed(int fd) {
    Descriptor descriptor(fd);
    descriptor.owned_ = false;
    return descriptor;
  }

  Descriptor(Descriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), owned_(other.owned_) {}

  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close_owned();
      fd_ = std::exchange(other.fd_, -1);
      owned_ = other.owned_;
    }
    return *this;
  }

  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  ~Descriptor() { close_owned(); }

  [[nodiscard]] int get() const { return fd_; }

  [[nodiscard]] bool valid() const { return fd_ >= 0; }

 private:
  void close_owned() const noexcept {
    if (owned_ && fd_ >= 0) {
      // Linux frees the number whatever close answers, so there is nothing to retry; what a write
      // had to report is reported by sync.
      static_cast<void>(::close(fd_));
    }
  }

  int fd_ = -1;
  bool owned_ = true;
};

// Repeats a system call that returns -1 while a signal interrupts it.
template <typename Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) {
    result = call();
  }
  return result;
}

}  // namespace hippogriff
