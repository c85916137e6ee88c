// One trial of aggregate risk analysis: from the events of a year to what the layers pay.
#pragma once

#include "workloads/sharing/work.hpp"

#include <cstddef>
#include <cstdint>

// Money is a whole number of dollars, so that sums are the same in any order.
using Money = std::int64_t;

// What is paid of a loss: the part beyond `deductible`, up to `limit`.
struct Terms {
  Money deductible = 0;
  Money limit = 0;

  [[nodiscard]] HIPPO_HOST_DEVICE Money paid(Money loss) const {
    const Money beyond = loss > deductible ? loss - deductible : 0;
    return beyond < limit ? beyond : limit;
  }
};

// A layer covers tables [first_table, last_table): its share of an event is the sum of theirs.
struct Layer {
  std::uint32_t first_table = 0;
  std::uint32_t last_table = 0;
  Terms occurrence;  // of one event
  Terms aggregate;   // of a year's sum
};

// An item is a trial. All pointers are the device's.
struct RiskWork {
  const std::uint64_t* first_event;  // of each trial, and one beyond the last
  const std::uint32_t* events;
  const Money* losses;       // [table][event], 0 where the table has not the event
  const Terms* table_terms;  // by table
  const Layer* layers;
  std::uint32_t layer_count;
  std::uint32_t catalogue;  // how many kinds of events there are
  Money* year_losses;       // by trial

  HIPPO_HOST_DEVICE void operator()(std::size_t trial) const {
    Money all = 0;
    for (std::uint32_t l = 0; l < layer_count; ++l) {
      Money year = 0;
      for (std::uint64_t e = first_event[trial]; e < first_event[trial + 1]; ++e) {
        year += layers[l].occurrence.paid(event_loss(layers[l], events[e]));
      }
      all += layers[l].aggregate.paid(year);
    }
    year_losses[trial] = all;
  }

 private:
  [[nodiscard]] HIPPO_HOST_DEVICE Money event_loss(const Layer& layer, std::uint32_t event) const {
    Money sum = 0;
    for (std::uint32_t t = layer.first_table; t < layer.last_table; ++t) {
      sum += table_terms[t].paid(losses[static_cast<std::size_t>(t) * catalogue + event]);
    }
    return sum;
  }
};
