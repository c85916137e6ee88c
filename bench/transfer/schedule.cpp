// Planning within a budget, and the rounds.
#include "transfer/schedule.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>

namespace bench {

namespace {

constexpr std::uint64_t smallest = mebibyte;  // below it latency says all
constexpr std::uint64_t verify_whole_max = 1024 * mebibyte;
constexpr double setting_up_seconds = 0.01;
// Larger cases take the settings that were fastest at the size before.
constexpr std::uint64_t heat_size_max = 1024 * mebibyte;

bool applies(const Case& what) {
  if (what.direction == Direction::recv) {
    return what.state == State::empty_file;
  }
  switch (what.state) {
    case State::cached:
      return true;
    case State::cold:
      return !what.place->in_memory;
    case State::half_cached:
      return !what.place->in_memory && what.size >= 16 * mebibyte;
    case State::striped:
      return !what.place->in_memory && what.size >= 4 * stripe_size;
    case State::empty_file:
      return false;
  }
  return false;
}

std::vector<Case> cases_of(const Plan& plan, Direction direction, State state) {
  std::vector<Case> cases;
  for (const Place& place : plan.places) {
    for (const std::uint64_t size : plan.sizes) {
      const Case what{direction, state, &place, size};
      if (size >= smallest && applies(what)) {
        cases.push_back(what);
      }
    }
  }
  return cases;
}

std::vector<Case> all_cases(const Plan& plan) {
  std::vector<Case> cases;
  for (const Direction direction : plan.directions) {
    for (const State state : plan.states) {
      const std::vector<Case> more = cases_of(plan, direction, state);
      cases.insert(cases.end(), more.begin(), more.end());
    }
  }
  return cases;
}

unsigned wanted_rounds(const Case& what, unsigned rounds) {
  if (what.size <= 16 * mebibyte) {
    return 4 * rounds;
  }
  return rounds;
}

double expected_seconds(const Contender& contender, const Case& what) {
  const auto size = static_cast<double>(what.size);
  const double moved = contender.name() == "drive_limit" && what.direction == Direction::send
                           ? size * (what.state == State::cold ? 1.0 : 0.5)
                           : size;
  return setting_up_seconds + moved / contender.expected_rate(what);
}

// Runs of each setting before the one that goes on is chosen.
unsigned heat_turns(const Case& what) {
  return what.slow() ? 3 : 5;
}

// Fitting by taking rounds from where they cost most.
void shorten(std::vector<PlannedCase>& cases, double budget_seconds) {
  const auto total = [&] {
    double seconds = 0;
    for (const PlannedCase& planned : cases) {
      seconds += planned.heat_seconds + planned.seconds(planned.rounds);
    }
    return seconds;
  };
  while (total() > budget_seconds) {
    const auto costliest = std::max_element(
        cases.begin(), cases.end(), [](const PlannedCase& left, const PlannedCase& right) {
          const auto share = [](const PlannedCase& planned) {
            return planned.rounds > 1 ? planned.seconds(planned.rounds) : 0.0;
          };
          return share(left) < share(right);
        });
    if (costliest == cases.end() || costliest->rounds <= 1) {
      return;
    }
    --costliest->rounds;
  }
}

// One run of the benchmark: its clock, and how far first guesses were from the truth.
class Runner {
 public:
  Runner(const Bench& bench,
         const Contenders& contenders,
         const Plan& plan,
         nlohmann::json& dropped)
      : bench_(bench), contenders_(contenders), plan_(plan), dropped_(dropped) {}

  std::vector<Measurement> run(const PlannedCase& planned, double rest_seconds) {
    std::vector<Measurement> results = enter(planned);
    prepare_device(planned.what);
    hold_heats(planned.what, results);
    const double started = now_seconds();
    std::vector<std::size_t> order(results.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937 random(static_cast<unsigned>(results.size()));
    unsigned round = 0;
    for (; round < planned.rounds; ++round) {
      const double own_seconds = planned.seconds(round + 1) - planned.seconds(round);
      const double needed = pace_ * (own_seconds + (round == 0 ? 0.0 : rest_seconds));
      if (now_seconds() + needed > plan_.deadline) {
        break;
      }
      // In another order each time: a contender can be slower behind a certain other one.
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t index : order) {
        measure(planned.what, results[index]);
      }
    }
    note_dropped(planned, results);
    if (round > 0) {
      const double pace = (now_seconds() - started) / planned.seconds(round);
      pace_ = std::clamp(0.5 * pace_ + 0.5 * pace, 0.3, 5.0);
    }
    return results;
  }

 private:
  std::vector<Measurement> enter(const PlannedCase& planned) {
    std::vector<Measurement> results;
    for (const auto& contender : contenders_) {
      Measurement& measurement = results.emplace_back();
      measurement.contender = contender.get();
      measurement.why_absent = contender->refusal(planned.what);
      measurement.planned = measurement.why_absent.empty()
                                ? std::min(planned.wanted, contender->repetitions_max(planned.what))
                                : 0;
    }
    return results;
  }

  // Of several settings of one contender the fastest goes on. It is chosen by runs of their own:
  // the best of many medians would be the luckiest of them, which is no setting anybody could
  // choose. Large cases take what was best at the size before.
  void hold_heats(const Case& what, std::vector<Measurement>& results) {
    std::map<std::string, std::vector<Measurement*>> groups;
    for (Measurement& result : results) {
      if (result.why_absent.empty()) {
        groups[result.contender->name()].push_back(&result);
      }
    }
    for (auto& [name, group] : groups) {
      if (group.size() < 2) {
        continue;
      }
      const Contender*& fastest = fastest_[{what.direction, what.state, what.place, name}];
      const bool known = std::any_of(group.begin(), group.end(), [&](const Measurement* one) {
        return one->contender == fastest;
      });
      if (!known || what.size <= heat_size_max) {
        fastest = hold_heat(what, group);
      }
      for (Measurement* loser : group) {
        if (fastest != nullptr && loser->contender != fastest && loser->why_absent.empty()) {
          loser->why_absent = "another setting was faster";
          loser->planned = 0;
        }
      }
    }
  }

  // The setting with the shortest median of its runs; nullptr when all failed.
  const Contender* hold_heat(const Case& what, const std::vector<Measurement*>& group) {
    const unsigned turns = heat_turns(what);
    std::vector<Measurement> heats;
    for (const Measurement* one : group) {
      heats.push_back(*one);
      heats.back().planned = turns;
    }
    for (unsigned turn = 0; turn < turns && now_seconds() < plan_.deadline; ++turn) {
      for (Measurement& heat : heats) {
        measure(what, heat);
      }
    }
    const Contender* fastest = nullptr;
    double shortest = std::numeric_limits<double>::infinity();
    for (std::size_t index = 0; index < heats.size(); ++index) {
      group[index]->why_absent = heats[index].why_absent;
      const double seconds = median_seconds(heats[index]);
      if (heats[index].why_absent.empty() && seconds < shortest) {
        shortest = seconds;
        fastest = heats[index].contender;
      }
    }
    return fastest;
  }

  static double median_seconds(const Measurement& measurement) {
    std::vector<double> seconds;
    for (const Cost& cost : measurement.costs) {
      seconds.push_back(cost.seconds);
    }
    return seconds.empty() ? std::numeric_limits<double>::infinity()
                           : spread_of(std::move(seconds)).median;
  }

  void prepare_device(const Case& what) {
    if (what.direction == Direction::recv) {
      fill_device(bench_.device, bench_.device_memory, what.size, bench_.pinned);
    }
  }

  // One repetition. A failure is the end of this contender's part in the case.
  void measure(const Case& what, Measurement& to) {
    if (!to.why_absent.empty() || to.costs.size() >= to.planned) {
      return;
    }
    try {
      const bool first = to.costs.empty() && to.contender->moves_contents();
      if (what.direction == Direction::recv) {
        clear_target(*what.place);
      } else {
        set_cached(*what.place, what.size, what.cached());
        if (first) {
          bench_.device.fill(bench_.device_memory, 0xA5, what.size);
        }
      }
      const double cached =
          what.direction == Direction::send ? cached_share(what.place->source(), what.size) : -1;
      const std::int64_t kept_before = to.contender->kept_bytes();
      Meter meter(what.size >= 64 * mebibyte ? Meter::Memory::watched : Meter::Memory::ignored);
      auto* contender = const_cast<Contender*>(to.contender);  // NOLINT: ours to run
      nlohmann::json detail = contender->run(what);
      Cost cost = meter.stop();
      cost.kept_growth_bytes = to.contender->kept_bytes() - kept_before;
      if (first) {
        verify(what, to);
      }
      to.costs.push_back(cost);
      to.cached_before.push_back(cached);
      to.details.push_back(std::move(detail));
    } catch (const std::exception& failure) {
      to.why_absent = failure.what();
    }
  }

  void verify(const Case& what, Measurement& to) {
    const bool whole = what.size <= verify_whole_max || what.direction == Direction::send;
    const std::string wrong =
        what.direction == Direction::send
            ? verify_device(bench_.device, bench_.device_memory, {0, what.size}, 1, bench_.pinned)
            : verify_target(*what.place, what.size, 2, whole);
    if (!wrong.empty()) {
      throw std::runtime_error("WRONG CONTENTS: " + wrong);
    }
    to.verified = whole ? "every byte" : "a sixteenth";
  }

  void note_dropped(const PlannedCase& planned, const std::vector<Measurement>& results) {
    for (const Measurement& result : results) {
      if (result.why_absent.empty() && result.costs.size() < result.planned) {
        dropped_.push_back({{"direction", direction_name(planned.what.direction)},
                            {"filesystem", planned.what.place->filesystem},
                            {"state", state_name(planned.what.state)},
                            {"size_bytes", planned.what.size},
                            {"contender", result.contender->name()},
                            {"parameters", result.contender->parameters()},
                            {"planned", result.planned},
                            {"done", result.costs.size()}});
      }
    }
  }

  Bench bench_;
  const Contenders& contenders_;
  const Plan& plan_;
  nlohmann::json& dropped_;
  double pace_ = 1.0;
  std::map<std::tuple<Direction, State, const Place*, std::string>, const Contender*> fastest_;
};

}  // namespace

double PlannedCase::seconds(unsigned of_rounds) const {
  double sum = 0;
  for (const auto& [repetition_seconds, enough] : repetitions) {
    sum += repetition_seconds * std::min(of_rounds, enough);
  }
  return sum;
}

std::vector<PlannedCase> plan_cases(const Plan& plan,
                                    const Contenders& contenders,
                                    double budget_seconds) {
  std::vector<PlannedCase> cases;
  std::set<std::tuple<Direction, State, const Place*, std::string>> held;  // heats
  for (const Case& what : all_cases(plan)) {
    PlannedCase planned{what, wanted_rounds(what, plan.rounds), 0, 0, {}};
    planned.rounds = planned.wanted;
    std::map<std::string, std::vector<const Contender*>> groups;
    for (const auto& contender : contenders) {
      if (contender->refusal(what).empty()) {
        groups[contender->name()].push_back(contender.get());
      }
    }
    for (const auto& [name, settings] : groups) {
      planned.repetitions.emplace_back(expected_seconds(*settings.front(), what),
                                       settings.front()->repetitions_max(what));
      const bool first = held.insert({what.direction, what.state, what.place, name}).second;
      for (const Contender* setting : settings) {
        const bool runs = settings.size() > 1 && (first || what.size <= heat_size_max);
        planned.heat_seconds += runs ? heat_turns(what) * expected_seconds(*setting, what) : 0.0;
      }
    }
    cases.push_back(planned);
  }
  shorten(cases, budget_seconds);
  return cases;
}

void run_cases(const Bench& bench,
               const Contenders& contenders,
               const Plan& plan,
               const std::vector<PlannedCase>& cases,
               nlohmann::json& dropped,
               const std::function<void(const Case&, const std::vector<Measurement>&)>& done) {
  Runner runner(bench, contenders, plan, dropped);
  double rest_seconds = 0;
  for (const PlannedCase& planned : cases) {
    rest_seconds += planned.heat_seconds + planned.seconds(1);
  }
  for (const PlannedCase& planned : cases) {
    rest_seconds -= planned.heat_seconds + planned.seconds(1);
    done(planned.what, runner.run(planned, rest_seconds));
  }
}

}  // namespace bench
