// Which cases are measured how often within a time budget, and measuring them: contenders take
// turns in every round, so that drift of the machine hits all alike.
#pragma once

#include "transfer/results.hpp"

#include <functional>
#include <utility>
#include <vector>

namespace bench {

struct Plan {
  std::vector<Place> places;
  std::vector<std::uint64_t> sizes;  // ascending
  std::vector<Direction> directions;
  std::vector<State> states;
  unsigned rounds = 5;  // of cases beyond 16 MiB
  double deadline = 0;  // by now_seconds()
};

// A case with what its rounds are expected to take.
struct PlannedCase {
  Case what;
  unsigned wanted = 0;      // rounds without a budget
  unsigned rounds = 0;      // rounds that fit
  double heat_seconds = 0;  // for choosing among settings of one contender, before the rounds
  // Of each contender: the seconds of a repetition, and how many are enough.
  std::vector<std::pair<double, unsigned>> repetitions;

  [[nodiscard]] double seconds(unsigned of_rounds) const;
};

// All cases, in the order in which they are measured. Rounds are taken from the most expensive
// cases until the whole fits into `budget_seconds`; none goes below one.
std::vector<PlannedCase> plan_cases(const Plan& plan,
                                    const Contenders& contenders,
                                    double budget_seconds);

// Measures them and calls `done` after each case with its results so far. What the deadline cuts
// off is added to `dropped`. A contender that fails is out of its case, with the reason in the
// results.
void run_cases(const Bench& bench,
               const Contenders& contenders,
               const Plan& plan,
               const std::vector<PlannedCase>& cases,
               nlohmann::json& dropped,
               const std::function<void(const Case&, const std::vector<Measurement>&)>& done);

}  // namespace bench
