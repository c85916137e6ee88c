// What `align` answers, without packing, index or descent.
#include "workloads/align/align.hpp"

AlignHit align_letter_by_letter(const std::string& reference,
                                const std::string& read,
                                std::uint32_t mismatches_max) {
  AlignHit hit;
  for (std::size_t place = 0; place + read.size() <= reference.size(); ++place) {
    std::uint32_t mismatches = 0;
    for (std::size_t i = 0; i < read.size() && mismatches <= mismatches_max; ++i) {
      mismatches += reference[place + i] == read[i] ? 0 : 1;
    }
    if (mismatches > mismatches_max) {
      continue;
    }
    ++hit.count;
    if (mismatches < hit.best) {
      hit.best = mismatches;
      hit.place = static_cast<std::uint32_t>(place);
    }
  }
  return hit;
}
