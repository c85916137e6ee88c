// Writes Chrome trace events, one per line.
#include "base/trace.hpp"

#include "base/error.hpp"
#include "base/own_descriptor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hippogriff {

namespace {

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

// Null, with errno, when it cannot be opened.
std::FILE* open_to_write(const std::string& path) {
  const int fd =
      own_descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  return fd < 0 ? nullptr : ::fdopen(fd, "w");
}

}  // namespace

Trace::Trace(const std::string& path) : file_(open_to_write(path)), path_(path) {
  if (file_ == nullptr) {
    throw_io("open trace", path, no_offset, errno);
  }
  std::fputs("[", file_);
}

Trace::~Trace() {
  const std::lock_guard lock(mutex_);
  std::fputs("\n]\n", file_);
  if (std::fclose(file_) != 0) {
    std::fprintf(
        stderr, "hippogriff: the trace %s is not complete (errno %d)\n", path_.c_str(), errno);
  }
}

void Trace::write_line(const std::string& line) {
  std::fputs(first_ ? "\n" : ",\n", file_);
  first_ = false;
  std::fputs(line.c_str(), file_);
}

std::uint32_t Trace::track(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t number = ++tracks_;
  write_line("{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":" + std::to_string(getpid()) +
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
  const std::string line = "{\"ph\":\"X\",\"name\":\"" + json_escaped(name) +
                           "\",\"pid\":" + std::to_string(getpid()) +
                           ",\"tid\":" + std::to_string(track) +
                           ",\"ts\":" + std::to_string(microseconds(begin.time_since_epoch())) +
                           ",\"dur\":" + std::to_string(microseconds(end - begin)) +
                           ",\"args\":{\"offset\":" + std::to_string(offset) +
                           ",\"bytes\":" + std::to_string(size_bytes) + "}}";
  const std::lock_guard lock(mutex_);
  write_line(line);
}

void Trace::flush() {
  const std::lock_guard lock(mutex_);
  std::fflush(file_);
}

}  // namespace hippogriff
