// Aggregate risk analysis: what catastrophes may cost a reinsurer in a year.
//
// Trials (simulated years) are lists of events; event loss tables say what an event costs each
// insured party; layers are contracts over several tables with terms for an event and for a year.
// The answer is the probable maximum loss: what a year exceeds once in so many years. Most of the
// time goes to simulating the trials, writing and reading them; the device computes at the end.
#pragma once

#include "workloads/risk/risk_work.hpp"
#include "workloads/sharing/program.hpp"

#include <cstdio>
#include <vector>

struct EventLoss {
  std::uint32_t event = 0;
  Money loss = 0;
};

struct Portfolio {
  std::uint32_t catalogue = 0;
  std::vector<std::vector<EventLoss>> tables;  // each ascending by event
  std::vector<Terms> table_terms;
  std::vector<Layer> layers;
};

struct Trials {
  std::vector<std::uint64_t> first_event = {0};  // one more than there are trials
  std::vector<std::uint32_t> events;

  [[nodiscard]] std::size_t count() const { return first_event.size() - 1; }
};

std::vector<NumberOption> risk_options();
Result run_risk(const Options& options);

Portfolio make_portfolio(const Options& options);

// Simulates trials into a file: a line each, the numbers of its events with commas between.
void write_trials(FILE* file, const Options& options);

// Reads them. Throws std::runtime_error for text that is none of `catalogue` events.
Trials read_trials(FILE* file, std::uint32_t catalogue);

// What is exceeded once in `years`, estimated by the year losses. `years` from 1 to their number.
Money probable_maximum_loss(std::vector<Money> year_losses, std::size_t years);

// The year loss of one trial by the book: event after event, what each adds to what is paid.
Money year_loss_by_the_book(const Portfolio& portfolio, const Trials& trials, std::size_t trial);
