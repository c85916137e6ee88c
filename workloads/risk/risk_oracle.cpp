// A year's loss as the contracts define it, slowly: tables are searched, payments are differences.
#include "workloads/risk/risk.hpp"

#include <algorithm>

namespace {

Money loss_in(const std::vector<EventLoss>& table, std::uint32_t event) {
  const auto found = std::find_if(
      table.begin(), table.end(), [&](const EventLoss& each) { return each.event == event; });
  return found == table.end() ? 0 : found->loss;
}

Money cut(Money loss, const Terms& terms) {
  return std::clamp<Money>(loss - terms.deductible, 0, terms.limit);
}

}  // namespace

Money year_loss_by_the_book(const Portfolio& portfolio, const Trials& trials, std::size_t trial) {
  Money all = 0;
  for (const Layer& layer : portfolio.layers) {
    Money occurred = 0;
    Money paid_before = 0;
    for (std::uint64_t e = trials.first_event[trial]; e < trials.first_event[trial + 1]; ++e) {
      Money event_loss = 0;
      for (std::uint32_t t = layer.first_table; t < layer.last_table; ++t) {
        event_loss += cut(loss_in(portfolio.tables[t], trials.events[e]), portfolio.table_terms[t]);
      }
      occurred += cut(event_loss, layer.occurrence);
      const Money paid_now = cut(occurred, layer.aggregate);
      all += paid_now - paid_before;
      paid_before = paid_now;
    }
  }
  return all;
}
