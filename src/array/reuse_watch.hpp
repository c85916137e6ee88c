// Whether rows are asked for again soon enough to be found in the cache: seen, not assumed.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

namespace hippogriff::ondemand {

// Says of each gather of an array whose rows could be read past its cache which way it takes. The
// first one goes past it, as was predicted. A look takes those after it through the cache, until
// they asked for twice as many lines as it has: then the share of hits decides. Past the cache
// there is another look after fifteen times as many lines, because programs change; where the cache
// was chosen one follows the other.
//
// What was read is known of the array as a whole. Where many gathers are queued ahead nothing of
// them has been read yet: hits are overestimated, and the cache is taken in vain, which costs a
// fifth at most. What others read meanwhile (kernels of the program's own, the host) makes hits too
// few: who mixes both takes load="none" for rows that are asked for again. Thread-safe.
class ReuseWatch {
 public:
  // `hits_enough` of 1 is the share of hits from which on the cache is the quicker way.
  ReuseWatch(double hits_enough, std::uint64_t cache_lines);

  // Whether rows that ask for so many lines, and are queued now, come through the cache. `reads` is
  // how many lines the array has read until now.
  bool takes_cache(std::uint64_t lines, std::uint64_t reads);

  // Lines were asked for ahead, of one gather more: it comes through the cache, where they are.
  void asked_ahead();

  struct Seen {
    bool past = true;            // what the last look chose
    std::optional<double> hits;  // of 1, about, at the last look
    double hits_enough = 0;
  };

  [[nodiscard]] Seen seen() const;

 private:
  enum class Stage : std::uint8_t { first, looking, past };

  void conclude(std::uint64_t reads);

  const double hits_enough_;
  const std::uint64_t look_lines_;
  mutable std::mutex mutex_;
  Stage stage_ = Stage::first;
  std::uint64_t ahead_ = 0;        // gathers whose lines were asked for
  std::uint64_t lines_ = 0;        // since this stage began
  std::uint64_t past_lines_ = 0;   // that are read past the cache before the next look
  std::uint64_t reads_begin_ = 0;  // when the look began
  bool chose_past_ = true;
  std::optional<double> hits_;
};

}  // namespace hippogriff::ondemand
