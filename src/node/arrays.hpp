// The arrays in storage that clients have open, and what these count, shown on their boards.
#pragma once

#include "node/client_slot.hpp"
#include "node/fork_page.hpp"
#include "node/segment.hpp"
#include "node/shown_records.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hippogriff::node {

struct ShownArray {
  std::uint64_t device = 0;  // device_key of its name
  std::string drive;         // that its files are on; "": on none, or on several
  std::uint64_t size_bytes = 0;
  std::uint64_t cache_bytes = 0;
  std::uint64_t line_bytes = 0;
};

// Since it was opened, but for what is in flight and the limit, which are now's. Lines, where there
// is no unit.
struct ArrayCounts {
  std::uint64_t accesses = 0;
  bool counts_accesses = true;  // false: kernels ask, too, of whom nobody knows how often
  std::uint64_t misses = 0;
  std::uint64_t overwritten = 0;
  std::uint64_t written_back = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t in_flight = 0;       // commands
  std::uint64_t drive_answers = 0;   // of requests to the drive; not what was in the page cache
  std::uint64_t drive_least_ns = 0;  // that such a request took when it was quickest; 0: unknown
  std::uint64_t drive_limit = 0;     // requests that its process may have there; 0: not limited
};

// As another client wrote it: numbers may be wrong, but none is larger than `shown_number_max`, and
// the times follow each other and are not in the future.
struct SeenArray {
  std::uint32_t client = 0;
  std::uint64_t pid = 0;
  std::uint32_t record = 0;  // of the client's: no two arrays at a time have the same
  ShownArray shown;
  ArrayCounts counts;
  std::int64_t opened_ns = 0;   // of monotonic_ns
  std::int64_t counted_ns = 0;  // when the counts were written
};

// One client's part of the boards. Thread-safe; no call waits for another process.
class ArrayTable {
 public:
  ArrayTable(const Segment& segment, const ClientSlot& slot) noexcept;

  [[nodiscard]] RecordRow<ArrayRecord, arrays_shown_max>& own() noexcept { return own_; }

  // Of clients that live. Asking for a life costs system calls.
  [[nodiscard]] std::vector<SeenArray> of_all() const;
  // The same without one's own.
  [[nodiscard]] std::vector<SeenArray> of_others() const;
  // Arrays of a client beyond those that are shown.
  [[nodiscard]] std::uint64_t unshown(std::uint32_t client) const noexcept;

 private:
  [[nodiscard]] std::vector<SeenArray> look(bool own_too) const;

  const Segment& segment_;
  const ClientSlot& slot_;
  RecordRow<ArrayRecord, arrays_shown_max> own_;
};

// For who takes over the slot of a dead client.
void clear_arrays(SegmentLayout& shared, std::uint32_t client) noexcept;

// An array's line on the board, from its opening to its end. `show` comes first, `count` from one
// thread at a time, and after `end` nothing but the destruction. In a forked child nothing happens.
class ArrayNotice {
 public:
  ArrayNotice(std::shared_ptr<ArrayTable> table, std::shared_ptr<const ForkPage> page) noexcept
      : table_(std::move(table)), page_(std::move(page)), record_(table_->own().take()) {}

  ~ArrayNotice() { end(); }

  ArrayNotice(const ArrayNotice&) = delete;
  ArrayNotice& operator=(const ArrayNotice&) = delete;

  // With all counts at 0.
  void show(const ShownArray& shown) noexcept;
  void count(const ArrayCounts& counts) noexcept;
  void end() noexcept;

  // What other clients show, with what ArrayTable::of_others costs. Thread-safe.
  [[nodiscard]] std::vector<SeenArray> others() const;

 private:
  [[nodiscard]] ArrayRecord* record() const noexcept { return page_->wiped() ? nullptr : record_; }

  const std::shared_ptr<ArrayTable> table_;
  const std::shared_ptr<const ForkPage> page_;
  ArrayRecord* const record_;
  bool ended_ = false;
};

}  // namespace hippogriff::node
