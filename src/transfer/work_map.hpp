// Which bytes of a transfer still wait for a lane, and of which kind they are: in the page cache
// (warm) or not (cold). Lanes claim pieces; what is not known yet is looked up as they go.
#pragma once

#include "base/range.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace hippogriff {

enum class Warmth : std::uint8_t { warm, cold };

struct WarmRange {
  Range range;
  Warmth warmth = Warmth::warm;
};

// Thread-safe. Warm pieces are claimed from both ends (reads from the front, mapped windows from
// the back, until they meet), cold ones as they are found, at either end. Every byte is claimed
// once, unless given back.
class WorkMap {
 public:
  // Splits a block into runs of one warmth, ascending and without holes. Called without the
  // lock, by up to two threads at once. What it throws, the claim throws: the block is then lost.
  using Classifier = std::function<std::vector<WarmRange>(Range block)>;
  // How much of a warm piece to claim, all of it or less: where its user would rather have it end.
  // Called with the lock.
  using Shorten = std::function<std::uint64_t(Range longest)>;

  // What is looked up at once, and up to half of it more, so that blocks end at its multiples.
  static constexpr std::uint64_t block_bytes = std::uint64_t{64} << 20;
  // The first block at the front: looking it up delays the first copy (45 ns for each of its pages
  // on one machine). Those after it double. As much as is parked as one piece.
  static constexpr std::uint64_t first_block_bytes = std::uint64_t{4} << 20;
  // Pieces end at multiples, but for the extent's, and those that are shortened.
  static constexpr std::uint64_t cut_bytes = 4096;

  // With a classifier nothing is known at first; without, all is of `otherwise`.
  WorkMap(Range extent, Classifier classifier, Warmth otherwise, Shorten shorten = nullptr);

  // Claims at most `most_bytes` (a multiple of cut_bytes, counted from the cut below the start) or
  // nothing when none of the kind is left. Waits only while another thread looks a block up;
  // claim_warm looks the next one up before it must, while others claim what is known.
  std::optional<Range> claim_warm(std::uint64_t most_bytes);
  std::optional<Range> claim_warm_window(std::uint64_t most_bytes);
  std::optional<Range> claim_cold(std::uint64_t most_bytes);

  void give_back(Range range, Warmth warmth);

  // Keeps the extent's end from `begin` on from being claimed until it is released: a file that
  // grows must not have its size before the rest is there. Before the first claim, and without a
  // classifier.
  void hold_back(std::uint64_t begin);
  // False when nothing is held back, or something else is still unclaimed. What is released is
  // warm.
  bool release_held();
  [[nodiscard]] std::uint64_t held_bytes() const;

  // Bytes nobody has claimed that claim_warm might give: warm, or not looked up yet.
  [[nodiscard]] std::uint64_t perhaps_warm_bytes() const;

  // Bytes nobody has claimed.
  [[nodiscard]] std::uint64_t unclaimed_bytes() const { return unclaimed_bytes_.load(); }

 private:
  enum class End : std::uint8_t { front, back };

  struct Runs {
    std::deque<Range> ranges;  // of warm ones ascending, but for what was given back
    std::uint64_t bytes = 0;

    void push_front(Range range);
    void push_back(Range range);  // joined with the last one where it follows
  };

  std::optional<Range> take(Runs& runs, std::uint64_t most_bytes, End end);
  Range next_block(End end);
  bool classify_next(std::unique_lock<std::mutex>& lock, End end);
  void add(std::vector<WarmRange>& runs, End end);

  const Classifier classifier_;
  const Shorten shorten_;
  mutable std::mutex mutex_;
  std::condition_variable classified_;
  Range unknown_;
  bool front_busy_ = false;
  bool back_busy_ = false;
  std::uint64_t looking_bytes_ = 0;                      // in the blocks that are looked up now
  std::uint64_t front_block_bytes_ = first_block_bytes;  // the next one at the front
  Runs warm_front_;                                      // found before the unknown middle
  Runs warm_back_;                                       // found behind it
  Runs cold_;
  End cold_end_ = End::front;  // where claim_cold looks next
  Range held_;
  std::atomic<std::uint64_t> unclaimed_bytes_;
};

}  // namespace hippogriff
