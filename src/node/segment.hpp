// The file that carries the books: made whole or not at all, checked before it is mapped.
#pragma once

#include "node/layout.hpp"
#include "node/segment_place.hpp"
#include "node/steps.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace hippogriff::node {

std::uint64_t header_checksum(const SegmentHeader& header);

// Whether a client of any version has its lock on the file; true also when the kernel cannot say.
// Who replaces it has all of it locked, from its first byte on, and does not count.
bool in_use(int fd);

// Whether it is a segment of this version that nobody has finished, and so nobody uses.
bool unfinished(int fd);

// An open and mapped segment. Thread-safe: nothing of it changes.
class Segment {
 public:
  // Joins the segment there, or makes one that holds `books`. Replaces a damaged one, and one of
  // another version that nobody uses. Throws Error: unsupported for another version that is in use
  // and for what is not a segment of this user alone, or of the group alone; busy where others
  // remove it all the time (after 2 s), or who makes it is stopped and cannot be replaced (2 to
  // 30 s, and as long as it goes on, up to a minute); io_error for what the system refuses.
  Segment(SegmentPlace place, const Books& books, const Steps& steps);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Somebody replaces it by one of another version: nobody takes a slot of it any more.
  [[nodiscard]] bool being_replaced() const noexcept;

  // False when the file has been deleted or has another size: leave it, its memory may be gone.
  [[nodiscard]] bool intact() const noexcept;
  // False when the file has another size: its memory may be gone. A deleted one's is there.
  [[nodiscard]] bool readable() const noexcept;

  [[nodiscard]] SegmentLayout& shared() const noexcept { return *shared_; }

  [[nodiscard]] int fd() const noexcept { return fd_; }

  [[nodiscard]] const std::string& path() const noexcept { return place_.path; }

 private:
  enum class State { sound, unfinished, damaged, outdated };

  bool join_or_make(const Books& books, const Steps& steps);
  bool open_existing();
  void create(const Steps& steps);
  void share_with_group() const;
  bool await_maker();
  bool finish(const Books& books, const Steps& steps);
  [[nodiscard]] State state() const;
  [[nodiscard]] bool may_be_removed() const;
  void remove_useless(bool waited) const;
  void map();
  void close_file() noexcept;

  const SegmentPlace place_;
  int fd_ = -1;
  SegmentLayout* shared_ = nullptr;
  std::chrono::milliseconds maker_patience_;
  // Until when a maker that goes on is waited for, set at the first of them.
  std::chrono::steady_clock::time_point slow_maker_deadline_ =
      std::chrono::steady_clock::time_point::max();
};

}  // namespace hippogriff::node
