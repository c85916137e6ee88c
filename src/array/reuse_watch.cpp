// Looks one after the other, each decides for the time until the next.
#include "array/reuse_watch.hpp"

#include <algorithm>

namespace hippogriff::ondemand {

namespace {

constexpr std::uint64_t look_caches = 2;
constexpr std::uint64_t sampled_one_of = 16;

}  // namespace

ReuseWatch::ReuseWatch(double hits_enough, std::uint64_t cache_lines)
    : hits_enough_(hits_enough),
      look_lines_(look_caches * std::max<std::uint64_t>(cache_lines, 1)) {}

bool ReuseWatch::takes_cache(std::uint64_t lines, std::uint64_t reads) {
  const std::lock_guard lock(mutex_);
  if (is_ahead_) {
    is_ahead_ = false;
    lines_ = 0;  // what was read ahead says nothing of reuse
    return true;
  }
  if (lines_ >= look_lines_) {
    look_at(reads);
  }
  const std::uint64_t number = gathers_++;
  const bool samples = hits_ ? number % sampled_one_of == 0 : number > 0;
  if (past_ && !samples) {
    return false;
  }
  if (lines_ == 0) {
    reads_begin_ = reads;
  }
  lines_ += lines;
  return true;
}

void ReuseWatch::look_at(std::uint64_t reads) {
  const auto missed = static_cast<double>(reads - std::min(reads, reads_begin_));
  hits_ = 1 - std::min(1.0, missed / static_cast<double>(lines_));
  past_ = *hits_ < hits_enough_;
  lines_ = 0;
}

void ReuseWatch::asked_ahead() {
  const std::lock_guard lock(mutex_);
  is_ahead_ = true;
}

ReuseWatch::Seen ReuseWatch::seen() const {
  const std::lock_guard lock(mutex_);
  return {.past = past_, .hits = hits_, .hits_enough = hits_enough_};
}

}  // namespace hippogriff::ondemand
