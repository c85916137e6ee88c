// The portfolio and the trials, both from the seed; trials go through a file.
#include "workloads/risk/risk.hpp"
#include "workloads/sharing/random.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>
#include <string>
#include <system_error>

namespace {

constexpr Money severity = 100'000;
constexpr Money loss_max = 1'000'000'000;
constexpr std::uint64_t table_share = 4;  // a table has every fourth event
constexpr std::uint64_t minutes_of_year = std::uint64_t{365} * 24 * 60;

// Heavy-tailed: of a thousand losses one is a thousand times the least.
Money random_loss(Random& random) {
  const double loss = static_cast<double>(severity) / random.uniform();
  return loss < static_cast<double>(loss_max) ? static_cast<Money>(loss) : loss_max;
}

// How often events happen: a few do every month, most once in a dozen years.
class Rates {
 public:
  explicit Rates(std::uint64_t catalogue) {
    std::uint64_t sum = 0;
    for (std::uint64_t event = 0; event < catalogue; ++event) {
      sum += 1 + catalogue / (event + 1);
      up_to_.push_back(sum);
    }
  }

  [[nodiscard]] std::uint32_t draw(Random& random) const {
    const auto found = std::ranges::upper_bound(up_to_, random.below(up_to_.back()));
    return static_cast<std::uint32_t>(found - up_to_.begin());
  }

 private:
  std::vector<std::uint64_t> up_to_;  // the rates of all events up to each
};

// The events of a year in the order in which they happen.
void simulate_year(std::size_t count,
                   const Rates& rates,
                   Random& random,
                   std::vector<std::uint64_t>& year) {
  year.clear();
  for (std::size_t e = 0; e < count; ++e) {
    const std::uint64_t minute = random.below(minutes_of_year);
    year.push_back(minute << 32U | rates.draw(random));
  }
  std::ranges::sort(year);
}

void append_number(std::string& line, std::uint32_t number) {
  std::array<char, 10> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  line.append(digits.data(), end);
}

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Adds the events of a line. Returns whether all of it was understood.
bool parse_line(const char* at, const char* end, std::uint32_t catalogue, Trials& trials) {
  while (at != end) {
    std::uint32_t event = 0;
    const auto [next, error] = std::from_chars(at, end, event);
    if (error != std::errc() || event >= catalogue || (next != end && *next != ',')) {
      return false;
    }
    trials.events.push_back(event);
    at = next == end ? end : next + 1;
  }
  trials.first_event.push_back(trials.events.size());
  return true;
}

}  // namespace

Portfolio make_portfolio(const Options& options) {
  Random random(options.number("seed"));
  Portfolio portfolio;
  portfolio.catalogue = static_cast<std::uint32_t>(options.number("events"));
  const auto layers = static_cast<std::uint32_t>(options.number("layers"));
  const auto tables_each = static_cast<std::uint32_t>(options.number("tables"));
  for (std::uint32_t l = 0; l < layers; ++l) {
    Layer layer;
    layer.first_table = l * tables_each;
    layer.last_table = (l + 1) * tables_each;
    // Beyond what several parties lose together, of which there is some in most years.
    layer.occurrence = {severity * (200 + random.below(400)),
                        severity * (500 + random.below(2000))};
    layer.aggregate = {severity * random.below(500), severity * (5000 + random.below(20000))};
    portfolio.layers.push_back(layer);
  }
  for (std::uint32_t t = 0; t < layers * tables_each; ++t) {
    portfolio.table_terms.push_back({severity * random.below(3), severity * 5000});
    std::vector<EventLoss>& table = portfolio.tables.emplace_back();
    for (std::uint32_t event = 0; event < portfolio.catalogue; ++event) {
      if (random.below(table_share) == 0) {
        table.push_back({event, random_loss(random)});
      }
    }
  }
  return portfolio;
}

void write_trials(FILE* file, const Options& options) {
  Random random(options.number("seed") + 1);
  const std::uint64_t trials = options.number("trials");
  const std::uint64_t mean = options.number("per-trial");
  const Rates rates(options.number("events"));
  std::vector<std::uint64_t> year;
  std::string line;
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    simulate_year(mean / 2 + random.below(mean + 1), rates, random, year);
    line.clear();
    for (const std::uint64_t event : year) {
      line += line.empty() ? "" : ",";
      append_number(line, static_cast<std::uint32_t>(event));
    }
    line += '\n';
    if (std::fwrite(line.data(), 1, line.size(), file) != line.size()) {
      throw_errno("write trials");
    }
  }
}

Trials read_trials(FILE* file, std::uint32_t catalogue) {
  Trials trials;
  std::vector<char> piece(std::size_t{1} << 20U);
  std::string line;
  while (std::fgets(piece.data(), static_cast<int>(piece.size()), file) != nullptr) {
    line += piece.data();
    if (!line.ends_with('\n')) {
      continue;
    }
    if (!parse_line(line.data(), line.data() + line.size() - 1, catalogue, trials)) {
      throw std::runtime_error("line " + std::to_string(trials.count() + 1) +
                               " is no trial: numbers of events below " +
                               std::to_string(catalogue) + " with commas between");
    }
    line.clear();
  }
  if (std::ferror(file) != 0) {
    throw_errno("read trials");
  }
  if (!line.empty()) {
    throw std::runtime_error("the last trial has no end of line");
  }
  return trials;
}
