// Whether rows are asked for again soon enough to be found in the cache: seen, not assumed.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

namespace hippogriff::ondemand {

// Says of each gather of an array whose rows could be read past its cache which way it takes. The
// first one goes past it, as was predicted. Those after it go through the cache, until they asked
// for twice as many lines as it has: then the share of hits decides. Past the cache each sixteenth
// goes through it nevertheless, and all are looked at on: programs change.
//
// Reads count when the storage is asked, which is after the gather was queued, and others' count as
// well: where many gathers are queued ahead hits are overestimated, and the cache, which is never
// much slower, is taken. Thread-safe.
class ReuseWatch {
 public:
  // `hits_enough` of 1 is the share of hits from which on the cache is the quicker way.
  ReuseWatch(double hits_enough, std::uint64_t cache_lines);

  // Whether rows that ask for so many lines, and are queued now, come through the cache. `reads` is
  // how many lines the array has read until now.
  bool takes_cache(std::uint64_t lines, std::uint64_t reads);

  // Lines were asked for ahead: the next rows come through the cache, where they are.
  void asked_ahead();

  struct Seen {
    bool past = true;            // the way that gathers take now
    std::optional<double> hits;  // of 1, at the last look
    double hits_enough = 0;
  };

  [[nodiscard]] Seen seen() const;

 private:
  void look_at(std::uint64_t reads);

  const double hits_enough_;
  const std::uint64_t look_lines_;
  mutable std::mutex mutex_;
  std::uint64_t gathers_ = 0;
  bool is_ahead_ = false;
  bool past_ = true;
  std::optional<double> hits_;
  std::uint64_t lines_ = 0;        // asked for since this look began
  std::uint64_t reads_begin_ = 0;  // when it began
};

}  // namespace hippogriff::ondemand
