// What all records on clients' boards have in common. A record's sequence is even while it holds
// something. Its writer, its client alone, makes it odd, writes, and makes it even again; a reader
// that finds the same even number before and after has seen one thing whole, however often the
// record was used. A writer that is killed leaves it odd: there is nothing.
#pragma once

#include "node/layout.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hippogriff::node {

// Everything counted or measured that others wrote is cut to this.
inline constexpr std::uint64_t shown_number_max = std::uint64_t{1} << 62U;

// Names of drives are cut to this.
inline constexpr std::size_t drive_name_max = sizeof(DriveName);

// The name as others wrote it, printable; for what read_whole and write_whole call.
std::string read_drive(const DriveName& letters);
void write_drive(DriveName& letters, std::string_view name) noexcept;

void show_client(ShowingBits& showing, std::uint32_t client) noexcept;
void hide_client(ShowingBits& showing, std::uint32_t client) noexcept;
std::vector<std::uint32_t> clients_that_show(const ShowingBits& showing);

// The number of things beyond those that have a record; 0 where it cannot be right.
std::uint64_t read_unshown(const std::atomic<std::uint64_t>& unshown) noexcept;

// `write` stores with release.
template <typename Record, typename Write>
void write_whole(Record& record, Write write) noexcept {
  const std::uint64_t odd = record.sequence.load(std::memory_order_relaxed) | 1U;
  record.sequence.store(odd, std::memory_order_relaxed);
  write();
  record.sequence.store(odd + 1, std::memory_order_release);
}

// What `read`, which loads with acquire, returns; nothing when the record holds nothing, or
// something else in the end.
template <typename Record, typename Read>
auto read_whole(const Record& record, Read read) -> std::optional<decltype(read())> {
  const std::uint64_t sequence = record.sequence.load(std::memory_order_acquire);
  if (sequence % 2 != 0 || sequence == 0) {
    return std::nullopt;
  }
  auto seen = read();
  if (record.sequence.load(std::memory_order_relaxed) != sequence) {
    return std::nullopt;
  }
  return seen;
}

template <typename Record>
void withdraw(Record& record) noexcept {
  record.sequence.store(record.sequence.load(std::memory_order_relaxed) | 1U,
                        std::memory_order_release);
}

// For who takes over the slot of a dead client.
template <typename Record, std::size_t Count>
void clear_records(std::array<Record, Count>& records,
                   std::atomic<std::uint64_t>& unshown) noexcept {
  unshown.store(0, std::memory_order_relaxed);
  for (Record& record : records) {
    withdraw(record);
  }
}

// A client's own records of one kind, as its threads take them. Thread-safe.
template <typename Record, std::size_t Count>
class RecordRow {
 public:
  RecordRow(std::array<Record, Count>& records,
            std::atomic<std::uint64_t>& unshown,
            ShowingBits& showing,
            std::uint32_t client) noexcept
      : records_(records), unshown_(unshown), showing_(showing), client_(client) {}

  // Null when all are taken; then it is only counted. Give both back.
  Record* take() noexcept {
    const std::scoped_lock turn(mutex_);
    const auto index = static_cast<std::size_t>(std::countr_one(taken_));
    if (index >= Count) {
      unshown_.fetch_add(1, std::memory_order_relaxed);
      return nullptr;
    }
    taken_ |= 1U << index;
    return &records_.at(index);
  }

  void give(Record* record) noexcept {
    const std::scoped_lock turn(mutex_);
    if (record == nullptr) {
      unshown_.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
    withdraw(*record);
    taken_ &= ~(1U << static_cast<unsigned>(record - records_.data()));
    if (taken_ == 0) {
      hide_client(showing_, client_);
    }
  }

  // After what a record holds was written.
  void show() noexcept { show_client(showing_, client_); }

 private:
  static_assert(Count < 32);
  std::array<Record, Count>& records_;
  std::atomic<std::uint64_t>& unshown_;
  ShowingBits& showing_;
  const std::uint32_t client_;
  std::mutex mutex_;         // guards taken_, and what follows from it
  std::uint32_t taken_ = 0;  // by bit
};

}  // namespace hippogriff::node
