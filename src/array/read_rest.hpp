// When all that is left of a cold file is better read in order: once what was read of it here and
// there took its drive about half as long as that will.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hippogriff::ondemand {

// Of each file of an array what parts of its blocks took more than in order, and what is left, in
// pages read in order. Who goes on here and there until little is left gets the rest in the time
// that the drive takes for it, not in several times that; for who does not, it is read in vain,
// once. A page alone takes as long as 5 in order on some drives, and 11 on others: then it begins
// when as long was spent as it will take. Thread-safe.
class ReadRest {
 public:
  ReadRest(std::size_t files, std::uint64_t file_pages) : files_(new OfFile[files]) {
    for (std::size_t file = 0; file < files; ++file) {
      files_[file].left_pages = static_cast<std::int64_t>(file_pages);
    }
  }

  // A part of a block that was not read as a whole before is about to be read by itself.
  void note_alone(std::size_t file) noexcept {
    files_[file].spent_pages.fetch_add(alone_pages, relaxed_order);
  }

  // Such a block is, as a whole.
  void note_whole(std::size_t file, std::uint64_t pages) noexcept {
    files_[file].left_pages.fetch_sub(static_cast<std::int64_t>(pages), relaxed_order);
  }

  // True for who is to read the rest now, until pause() or end().
  [[nodiscard]] bool begin(std::size_t file) noexcept {
    OfFile& its = files_[file];
    const std::int64_t left = its.left_pages.load(relaxed_order);
    State idle = State::idle;
    return left >= left_pages_min && its.spent_pages.load(relaxed_order) >= left / 2 &&
           its.state.load(relaxed_order) == State::idle &&
           its.state.compare_exchange_strong(idle, State::under_way, std::memory_order_acquire);
  }

  void pause(std::size_t file) noexcept {
    files_[file].state.store(State::idle, std::memory_order_release);
  }

  void end(std::size_t file) noexcept { files_[file].state.store(State::ended, relaxed_order); }

  [[nodiscard]] bool is_under_way(std::size_t file) const noexcept {
    return files_[file].state.load(relaxed_order) == State::under_way;
  }

  [[nodiscard]] std::uint64_t left_pages(std::size_t file) const noexcept {
    return static_cast<std::uint64_t>(
        std::max<std::int64_t>(files_[file].left_pages.load(relaxed_order), 0));
  }

  // Where it goes on: for who reads it alone.
  [[nodiscard]] std::size_t& next_block(std::size_t file) noexcept {
    return files_[file].next_block;
  }

 private:
  enum class State : std::uint8_t { idle, under_way, ended };

  struct OfFile {
    std::atomic<std::int64_t> spent_pages{0};
    std::atomic<std::int64_t> left_pages{0};
    std::atomic<State> state{State::idle};
    std::size_t next_block = 0;
  };

  static constexpr auto relaxed_order = std::memory_order_relaxed;
  // What a part that lies alone takes more than in order, about.
  static constexpr std::int64_t alone_pages = 5;
  // Less is soon read as it comes.
  static constexpr std::int64_t left_pages_min = 2048;

  std::unique_ptr<OfFile[]> files_;
};

}  // namespace hippogriff::ondemand
