// The sentences, and the sums that must not overflow.
#include "transfer/caller_checks.hpp"

#include <utility>

namespace hippogriff {

const char* verb(Direction direction) {
  return direction == Direction::send ? "send" : "recv";
}

void throw_caller(const Submission& submission, std::string detail) {
  throw Error({.status = Status::invalid_argument,
               .operation = verb(submission.direction),
               .object = submission.path,
               .offset = submission.offset,
               .detail = std::move(detail)});
}

std::string bytes(std::uint64_t count) {
  return std::to_string(count) + " bytes";
}

std::uint64_t checked_end(const Submission& submission, std::uint64_t size) {
  if (submission.offset > INT64_MAX || size > INT64_MAX - submission.offset) {
    throw_caller(submission, "offset and size exceed what a file can have");
  }
  return submission.offset + size;
}

std::shared_ptr<File> open_for_send(const Submission& submission, Storage& storage) {
  return submission.path.empty() ? storage.adopt(submission.fd, FileAccess::read)
                                 : storage.open(submission.path, FileAccess::read);
}

Range send_extent(Submission submission, const File& file) {
  submission.path = file.facts().path;  // also where it came by descriptor
  const std::uint64_t size = file.identity().size;
  if (submission.offset > size) {
    throw_caller(submission, "the offset lies past the end of the file (" + bytes(size) + ")");
  }
  const std::uint64_t rest = size - submission.offset;
  if (submission.size > rest) {
    throw_caller(submission,
                 "asked for " + bytes(submission.size) + ", but the file has only " + bytes(rest) +
                     " from the offset on");
  }
  return {submission.offset, submission.size == 0 ? rest : submission.size};
}

}  // namespace hippogriff
