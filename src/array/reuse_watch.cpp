// Looks, each of which decides for the time until the next.
#include "array/reuse_watch.hpp"

#include <algorithm>

namespace hippogriff::ondemand {

namespace {

constexpr std::uint64_t look_caches = 2;
constexpr std::uint64_t looks_between = 15;
// Who asks ahead and never gathers must not have all gathers to come through the cache.
constexpr std::uint64_t ahead_max = 64;

}  // namespace

ReuseWatch::ReuseWatch(double hits_enough, std::uint64_t cache_lines)
    : hits_enough_(hits_enough),
      look_lines_(look_caches * std::max<std::uint64_t>(cache_lines, 1)) {}

bool ReuseWatch::takes_cache(std::uint64_t lines, std::uint64_t reads) {
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::looking && lines_ >= look_lines_) {
    conclude(reads);
  } else if (stage_ == Stage::past && lines_ >= past_lines_) {
    stage_ = Stage::looking;
    lines_ = 0;
  }
  if (stage_ == Stage::looking && lines_ == 0) {
    reads_begin_ = reads;
  }
  const bool is_ahead = ahead_ > 0;
  ahead_ -= is_ahead ? 1 : 0;
  const bool through = is_ahead || stage_ == Stage::looking;
  if (stage_ == Stage::first) {
    stage_ = Stage::looking;
  } else {
    lines_ += lines;
  }
  return through;
}

void ReuseWatch::conclude(std::uint64_t reads) {
  const auto missed = static_cast<double>(reads - std::min(reads, reads_begin_));
  hits_ = 1 - std::min(1.0, missed / static_cast<double>(lines_));
  chose_past_ = *hits_ < hits_enough_;
  stage_ = chose_past_ ? Stage::past : Stage::looking;
  past_lines_ = looks_between * lines_;
  lines_ = 0;
}

void ReuseWatch::asked_ahead() {
  const std::lock_guard lock(mutex_);
  ahead_ = std::min(ahead_ + 1, ahead_max);
}

ReuseWatch::Seen ReuseWatch::seen() const {
  const std::lock_guard lock(mutex_);
  return {.past = chose_past_, .hits = hits_, .hits_enough = hits_enough_};
}

}  // namespace hippogriff::ondemand
