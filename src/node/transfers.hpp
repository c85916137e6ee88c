// The transfers that clients have in flight, shown on their boards so that others can plan by them.
#pragma once

#include "node/client_slot.hpp"
#include "node/fork_page.hpp"
#include "node/segment.hpp"
#include "node/shown_records.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace hippogriff::node {

// What of a transfer is under way now.
enum class TransferPhase : std::uint8_t {
  moving,   // all of it
  parking,  // the file's side: the device is not ready
  waiting,  // nothing: it waits for the device
};

struct ShownTransfer {
  std::uint64_t device = 0;  // device_key of its name
  std::string drive;         // "": none is used
  bool sends = true;         // file to device
  std::uint8_t route = 0;    // as the caller counts them
  TransferPhase phase = TransferPhase::moving;
  bool wants_memory = false;         // waits for memory of the device
  std::uint16_t drive_requests = 0;  // planned to be in flight at the drive
  std::uint16_t channels = 0;        // planned threads
  std::uint64_t bytes_total = 0;
  std::uint64_t bytes_done = 0;
  std::int64_t started_ns = 0;  // of monotonic_ns
};

// As another client wrote it: numbers may be wrong, but `phase` is one, `bytes_done` no more than
// `bytes_total`, `started_ns` not in the future, and the name printable.
struct SeenTransfer {
  std::uint32_t client = 0;
  std::uint64_t pid = 0;
  ShownTransfer shown;
};

// One client's part of the boards. Thread-safe; no call waits for another process.
class TransferTable {
 public:
  TransferTable(const Segment& segment, const ClientSlot& slot) noexcept;

  [[nodiscard]] RecordRow<TransferRecord, transfers_shown_max>& own() noexcept { return own_; }

  // Of clients that lived a tenth of a second ago. Costs nothing for clients that show none.
  [[nodiscard]] std::vector<SeenTransfer> of_others();
  [[nodiscard]] std::vector<SeenTransfer> of_all();
  // Transfers of a client beyond those that are shown.
  [[nodiscard]] std::uint64_t unshown(std::uint32_t client) const noexcept;

 private:
  // What was last found out about a client's life.
  struct Life {
    std::uint32_t term = 0;
    bool lives = false;
    std::int64_t looked_ns = 0;  // 0: never
  };

  [[nodiscard]] std::vector<SeenTransfer> look(bool own_too);
  [[nodiscard]] bool lives(std::uint32_t client, std::uint32_t term, std::int64_t now_ns);

  const Segment& segment_;
  const ClientSlot& slot_;
  RecordRow<TransferRecord, transfers_shown_max> own_;
  std::mutex lives_mutex_;  // guards lives_
  std::array<Life, clients_max> lives_{};
};

// For who takes over the slot of a dead client.
void clear_transfers(SegmentLayout& shared, std::uint32_t client) noexcept;

// A transfer's line on the board, for as long as the transfer is in flight. Thread-safe, but for
// `end`, after which nothing may come but its destruction. In a forked child nothing happens.
class TransferNotice {
 public:
  TransferNotice(std::shared_ptr<TransferTable> table,
                 std::shared_ptr<const ForkPage> page) noexcept
      : table_(std::move(table)), page_(std::move(page)), record_(table_->own().take()) {}

  ~TransferNotice() { end(); }

  TransferNotice(const TransferNotice&) = delete;
  TransferNotice& operator=(const TransferNotice&) = delete;

  // All of it; for one thread at a time.
  void show(const ShownTransfer& shown) noexcept;
  void set_phase(TransferPhase phase, bool wants_memory) noexcept;
  void set_done(std::uint64_t bytes_done) noexcept;
  void end() noexcept;

 private:
  [[nodiscard]] TransferRecord* record() const noexcept {
    return page_->wiped() ? nullptr : record_;
  }

  const std::shared_ptr<TransferTable> table_;
  const std::shared_ptr<const ForkPage> page_;
  TransferRecord* const record_;
  std::atomic<bool> ended_{false};
};

}  // namespace hippogriff::node
