// One client's way into a segment: lock, read the books, commit them, wake who was granted.
#pragma once

#include "node/arrays.hpp"
#include "node/board.hpp"
#include "node/books.hpp"
#include "node/client_slot.hpp"
#include "node/host_clock.hpp"
#include "node/segment.hpp"
#include "node/segment_lock.hpp"
#include "node/steps.hpp"
#include "node/transfers.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hippogriff::node {

// Joins the segment, takes a slot. What changes the books is for one thread at a time; `signal`,
// `wait` and `intact` for any.
class Attachment {
 public:
  // `fresh` is what the books are where there is no segment yet, or none that can be repaired.
  Attachment(const SegmentPlace& place,
             const Books& fresh,
             const Steps& steps,
             std::optional<Leader> leader = std::nullopt,
             std::uint32_t served_pid = 0,
             std::optional<Leader> former_self = std::nullopt);

  [[nodiscard]] bool intact() const noexcept { return segment_.intact(); }

  // Of a file that is not intact: whether what stands in it can still be read.
  [[nodiscard]] bool readable() const noexcept { return segment_.readable(); }

  [[nodiscard]] std::uint32_t client() const noexcept { return slot_.index(); }

  [[nodiscard]] const std::string& path() const noexcept { return segment_.path(); }

  [[nodiscard]] bool lives(std::uint32_t client) const noexcept {
    return client == slot_.index() || slot_.lives(client);
  }

  // It or any that follows it.
  [[nodiscard]] bool group_lives(std::uint32_t client) const noexcept {
    return client == slot_.index() || slot_.group_lives(client);
  }

  [[nodiscard]] std::uint64_t user_pid_of(std::uint32_t client) const noexcept {
    return slot_.user_pid_of(client);
  }

  [[nodiscard]] bool pid_is_here(std::uint32_t client) const noexcept {
    return slot_.pid_is_here(client);
  }

  [[nodiscard]] const ClientSlot& slot() const noexcept { return slot_; }

  [[nodiscard]] Board& board() noexcept { return board_; }

  [[nodiscard]] TransferTable& transfers() noexcept { return transfers_; }

  [[nodiscard]] ArrayTable& arrays() noexcept { return arrays_; }

  void hand_over() { slot_.hand_over(); }

  void lock(MonotonicTime deadline) { lock_.lock(deadline); }

  [[nodiscard]] bool try_lock() noexcept { return lock_.try_lock(); }

  void unlock() noexcept { lock_.unlock(); }

  // Under the lock. The image that counts, else the other one, else the fresh books; a new
  // generation says that it was not the first.
  void read(Books& books);
  // Under the lock. Dying in it leaves the books as they were or as they shall be. False when the
  // lock was damaged, or taken away because we did not go on: to be done again, perhaps elsewhere.
  [[nodiscard]] bool commit(const Books& books);

  // After unlocking.
  void wake(const ClientSet& clients) noexcept;

  // Of this client, or of the one that is waited for: a leader's signal wakes its followers too.
  [[nodiscard]] std::uint32_t signal() const noexcept { return signal(client()); }

  [[nodiscard]] std::uint32_t signal(std::uint32_t client) const noexcept;

  void wait(std::uint32_t seen_signal, std::chrono::nanoseconds at_most) const noexcept {
    wait(client(), seen_signal, at_most);
  }

  void wait(std::uint32_t client,
            std::uint32_t seen_signal,
            std::chrono::nanoseconds at_most) const noexcept;

 private:
  [[nodiscard]] std::span<const std::byte> half(std::uint64_t sequence) const noexcept;
  bool read_half(std::uint64_t which, Books& books);
  bool read_known(std::uint64_t named, Books& books) const;

  const Steps& steps_;
  Books fresh_;
  Segment segment_;
  ClientSlot slot_;
  Board board_;
  TransferTable transfers_;
  ArrayTable arrays_;
  SegmentLock lock_;
  std::uint64_t sequence_ = 0;  // of the books read last
  std::uint64_t named_ = 0;     // what the commit word was then
  std::vector<std::byte> image_;
  bool image_is_right_ = false;  // that of sequence_, checked or made here
};

}  // namespace hippogriff::node
