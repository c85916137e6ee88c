// Writes Chrome trace events, one per line.
#include "base/trace.hpp"

#include "base/error.hpp"
#include "base/own_descriptor.hpp"
#include "base/size_limit.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace hippogriff {

namespace {

// Every trace begins so, or is only that and its end.
constexpr std::string_view beginning = "[\n{\"ph\":\"";
constexpr std::string_view empty_trace = "[\n\n]\n";

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

std::string json_escaped(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') {
      escaped += '\\';
    }
    escaped += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
  }
  return escaped;
}

int open_to_write(const std::string& path) {
  const int fd = own_descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (fd < 0) {
    throw_io("open trace", path, no_offset, errno);
  }
  return fd;
}

// A former trace may be written over; what somebody named by mistake may not.
bool may_be_written_over(int fd) {
  struct stat facts{};
  if (::fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size == 0) {
    return true;
  }
  std::array<char, beginning.size()> begin{};
  const ssize_t got = ::pread(fd, begin.data(), begin.size(), 0);
  const std::string_view found(begin.data(), got < 0 ? 0 : static_cast<std::size_t>(got));
  return found == beginning || found == empty_trace || found == empty_trace.substr(0, 2);
}

// "a.json" with 12 is "a.12.json".
std::string with_number(const std::string& path, pid_t number) {
  const std::size_t name = path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/');
  const std::size_t dot = path.find_last_of('.');
  const std::size_t at = dot == std::string::npos || dot <= name + 1 ? path.size() : dot;
  return path.substr(0, at) + "." + std::to_string(number) + path.substr(at);
}

}  // namespace

Trace::Trace(const std::string& path) : fd_(open_to_write(path)), path_(path), pid_(::getpid()) {
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    static_cast<void>(::close(fd_));
    path_ = with_number(path, pid_);
    fd_ = open_to_write(path_);
    static_cast<void>(::flock(fd_, LOCK_EX | LOCK_NB));
  }
  if (!may_be_written_over(fd_)) {
    static_cast<void>(::close(fd_));
    throw Error({.status = Status::invalid_argument,
                 .operation = "open trace",
                 .object = path_,
                 .detail = "the file has something else in it: remove it, or name another"});
  }
  // A pipe or a terminal has no size.
  if (::ftruncate(fd_, 0) != 0 && errno != EINVAL) {
    const int error = errno;
    static_cast<void>(::close(fd_));
    throw_io("open trace", path_, no_offset, error);
  }
  write("[\n");
}

Trace::~Trace() {
  if (::getpid() == pid_) {
    const std::lock_guard lock(mutex_);
    write("\n]\n");
    if (errno_ != 0) {
      std::fprintf(
          stderr, "hippogriff: the trace %s is not complete (errno %d)\n", path_.c_str(), errno_);
    }
  }
  static_cast<void>(::close(fd_));
}

// At once: a program that is killed leaves whole lines, and a forked child nothing to write again.
void Trace::write(std::string_view text) {
  const SizeLimitScope size_limit;
  while (!text.empty() && errno_ == 0) {
    const ssize_t put = ::write(fd_, text.data(), text.size());
    if (put < 0 && errno != EINTR) {
      errno_ = errno;
    }
    text.remove_prefix(put < 0 ? 0 : static_cast<std::size_t>(put));
  }
}

void Trace::write_event(const std::string& event) {
  const std::lock_guard lock(mutex_);
  if (::getpid() == pid_) {  // else it is the parent's
    write(first_ ? event : ",\n" + event);
    first_ = false;
  }
}

std::uint32_t Trace::track(std::string_view name) {
  const std::uint32_t number = ++tracks_;
  write_event("{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":" + std::to_string(pid_) +
              ",\"tid\":" + std::to_string(number) + ",\"args\":{\"name\":\"" + json_escaped(name) +
              "\"}}");
  return number;
}

void Trace::slice(std::uint32_t track,
                  std::string_view name,
                  Clock::time_point begin,
                  Clock::time_point end,
                  std::uint64_t offset,
                  std::uint64_t size_bytes) {
  write_event("{\"ph\":\"X\",\"name\":\"" + json_escaped(name) +
              "\",\"pid\":" + std::to_string(pid_) + ",\"tid\":" + std::to_string(track) +
              ",\"ts\":" + std::to_string(microseconds(begin.time_since_epoch())) +
              ",\"dur\":" + std::to_string(microseconds(end - begin)) + ",\"args\":{\"offset\":" +
              std::to_string(offset) + ",\"bytes\":" + std::to_string(size_bytes) + "}}");
}

}  // namespace hippogriff
