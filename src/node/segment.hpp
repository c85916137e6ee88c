// The file that carries the books: made whole or not at all, checked before it is mapped.
#pragma once

#include "node/layout.hpp"
#include "node/steps.hpp"

#include <cstdint>
#include <string>

namespace hippogriff::node {

// "/dev/shm/hippogriff-<uid>".
std::string default_segment_path();

// An open and mapped segment. Thread-safe: nothing of it changes.
class Segment {
 public:
  // Joins the segment at `path`, or makes one that holds `books`. Replaces a damaged one. Throws
  // Error: unsupported for another version and for what is not a segment of this user alone,
  // io_error for what the system refuses.
  Segment(std::string path, const Books& books, const Steps& steps);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // False when the file has been deleted or has another size: leave it, its memory may be gone.
  [[nodiscard]] bool intact() const noexcept;

  [[nodiscard]] SegmentLayout& shared() const noexcept { return *shared_; }

  [[nodiscard]] int fd() const noexcept { return fd_; }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  bool join_or_make(const Books& books, const Steps& steps);
  bool open_existing();
  bool create(const Books& books, const Steps& steps);
  void refuse_foreign() const;
  [[nodiscard]] bool damaged() const;
  void remove_damaged() const;
  void map();
  void close_file() noexcept;

  std::string path_;
  int fd_ = -1;
  SegmentLayout* shared_ = nullptr;
};

}  // namespace hippogriff::node
