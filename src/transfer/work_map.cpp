// Claims from both ends, classification from both ends towards the middle.
#include "transfer/work_map.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace hippogriff {

namespace {

// At most `most_bytes` from the start of `run`, cut on a boundary.
Range front_of(const Range& run, std::uint64_t most_bytes) {
  const std::uint64_t end =
      std::min(run.end(), align_down(run.offset, WorkMap::cut_bytes) + most_bytes);
  return {run.offset, end - run.offset};
}

Range back_of(const Range& run, std::uint64_t most_bytes) {
  const std::uint64_t top = align_up(run.end(), WorkMap::cut_bytes);
  const std::uint64_t begin = std::max(run.offset, top > most_bytes ? top - most_bytes : 0);
  return {begin, run.end() - begin};
}

}  // namespace

void WorkMap::Runs::push_front(Range range) {
  ranges.push_front(range);
  bytes += range.size;
}

void WorkMap::Runs::push_back(Range range) {
  if (!ranges.empty() && ranges.back().end() == range.offset) {
    ranges.back().size += range.size;
  } else {
    ranges.push_back(range);
  }
  bytes += range.size;
}

WorkMap::WorkMap(Range extent, Classifier classifier, Warmth otherwise, Shorten shorten)
    : classifier_(std::move(classifier)),
      shorten_(std::move(shorten)),
      unknown_(extent),
      unclaimed_bytes_(extent.size) {
  if (classifier_ || extent.empty()) {
    return;
  }
  unknown_ = {extent.end(), 0};
  (otherwise == Warmth::warm ? warm_front_ : cold_).push_back(extent);
}

// Claims from one end of a queue of runs.
std::optional<Range> WorkMap::take(Runs& runs, std::uint64_t most_bytes, End end) {
  if (runs.ranges.empty()) {
    return std::nullopt;
  }
  Range& run = end == End::back ? runs.ranges.back() : runs.ranges.front();
  Range piece = end == End::back ? back_of(run, most_bytes) : front_of(run, most_bytes);
  if (end == End::back) {
    run.size -= piece.size;
  } else {
    if (shorten_ && &runs != &cold_) {
      piece.size = shorten_(piece);
      HIPPO_ASSERT(!piece.empty() && piece.size <= run.size);
    }
    run = {piece.end(), run.size - piece.size};
  }
  if (run.empty()) {
    if (end == End::back) {
      runs.ranges.pop_back();
    } else {
      runs.ranges.pop_front();
    }
  }
  runs.bytes -= piece.size;
  unclaimed_bytes_ -= piece.size;
  return piece;
}

std::optional<Range> WorkMap::claim_warm(std::uint64_t most_bytes) {
  std::unique_lock lock(mutex_);
  if (warm_front_.bytes < front_block_bytes_ && !unknown_.empty() && !front_busy_) {
    classify_next(lock, End::front);
  }
  while (true) {
    if (auto piece = take(warm_front_, most_bytes, End::front)) {
      return piece;
    }
    if (!classify_next(lock, End::front)) {
      return take(warm_back_, most_bytes, End::front);
    }
  }
}

std::optional<Range> WorkMap::claim_warm_window(std::uint64_t most_bytes) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (auto piece = take(warm_back_, most_bytes, End::back)) {
      return piece;
    }
    if (!classify_next(lock, End::back)) {
      return take(warm_front_, most_bytes, End::back);
    }
  }
}

// Looks at one end until a block there has nothing cold, then at the other: the drive stands still
// until the first is found, and looking half of 8 GiB up takes 47 ms, at 45 ns for each page.
std::optional<Range> WorkMap::claim_cold(std::uint64_t most_bytes) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (auto piece = take(cold_, most_bytes, End::front)) {
      return piece;
    }
    const bool others_look = cold_end_ == End::front ? front_busy_ : back_busy_;
    const End other = cold_end_ == End::front ? End::back : End::front;
    if (!classify_next(lock, others_look ? other : cold_end_)) {
      return std::nullopt;
    }
    if (cold_.ranges.empty()) {
      cold_end_ = cold_end_ == End::front ? End::back : End::front;
    }
  }
}

// Cuts a block off one end of the unknown middle.
Range WorkMap::next_block(End end) {
  if (end == End::back) {
    const std::uint64_t start =
        std::max(unknown_.offset, align_down(unknown_.end() - 1, block_bytes));
    const Range block{start, unknown_.end() - start};
    unknown_.size = start - unknown_.offset;
    return block;
  }
  // Not less than half of it, wherever the extent begins.
  const std::uint64_t size = front_block_bytes_;
  const std::uint64_t stop =
      std::min(unknown_.end(), align_down(unknown_.offset + size / 2, size) + size);
  const Range block{unknown_.offset, stop - unknown_.offset};
  unknown_ = {stop, unknown_.end() - stop};
  front_block_bytes_ = std::min(2 * front_block_bytes_, block_bytes);
  return block;
}

// Looks the next block up at one end of the unknown middle, or waits for the thread that does.
// False when nothing is unknown any more and nobody is looking.
bool WorkMap::classify_next(std::unique_lock<std::mutex>& lock, End end) {
  bool& busy = end == End::front ? front_busy_ : back_busy_;
  if (busy || unknown_.empty()) {
    if (!front_busy_ && !back_busy_) {
      return false;
    }
    classified_.wait(lock);
    return true;
  }
  busy = true;
  const Range block = next_block(end);
  looking_bytes_ += block.size;
  std::exception_ptr failure;
  lock.unlock();
  try {
    std::vector<WarmRange> runs = classifier_(block);
    lock.lock();
    add(runs, end);
  } catch (...) {
    failure = std::current_exception();
  }
  if (!lock.owns_lock()) {
    lock.lock();
  }
  looking_bytes_ -= block.size;
  busy = false;
  classified_.notify_all();  // whatever was thrown: others wait
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
  return true;
}

void WorkMap::add(std::vector<WarmRange>& runs, End end) {
  if (end == End::back) {
    std::reverse(runs.begin(), runs.end());
  }
  for (const WarmRange& run : runs) {
    if (run.warmth == Warmth::cold) {
      cold_.push_back(run.range);
    } else if (end == End::front) {
      warm_front_.push_back(run.range);
    } else {
      warm_back_.push_front(run.range);
    }
  }
}

void WorkMap::hold_back(std::uint64_t begin) {
  const std::lock_guard lock(mutex_);
  HIPPO_ASSERT(unknown_.empty() && warm_front_.ranges.size() + cold_.ranges.size() == 1);
  Runs& runs = warm_front_.ranges.empty() ? cold_ : warm_front_;
  Range& all = runs.ranges.front();
  HIPPO_ASSERT(begin > all.offset && begin < all.end());
  held_ = {begin, all.end() - begin};
  all.size = begin - all.offset;
  runs.bytes -= held_.size;
}

bool WorkMap::release_held() {
  const std::lock_guard lock(mutex_);
  if (held_.empty() || unclaimed_bytes_ != held_.size) {
    return false;
  }
  warm_front_.push_back(held_);
  held_ = {};
  return true;
}

std::uint64_t WorkMap::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return held_.size;
}

std::uint64_t WorkMap::perhaps_warm_bytes() const {
  const std::lock_guard lock(mutex_);
  return unknown_.size + looking_bytes_ + warm_front_.bytes + warm_back_.bytes;
}

void WorkMap::give_back(Range range, Warmth warmth) {
  if (range.empty()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    (warmth == Warmth::cold ? cold_ : warm_front_).push_front(range);
    unclaimed_bytes_ += range.size;
  }
  classified_.notify_all();
}

}  // namespace hippogriff
