// The portfolio and the trials, both from the seed; trials go through a file.
#include "workloads/risk/risk.hpp"
#include "workloads/sharing/random.hpp"

#include <charconv>
#include <stdexcept>
#include <string>
#include <system_error>

namespace {

constexpr Money severity = 100'000;
constexpr Money loss_max = 1'000'000'000;
constexpr std::uint64_t table_share = 4;  // a table has every fourth event

// Heavy-tailed: of a thousand losses one is a thousand times the least.
Money random_loss(Random& random) {
  const double loss = static_cast<double>(severity) / random.uniform();
  return loss < static_cast<double>(loss_max) ? static_cast<Money>(loss) : loss_max;
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
    layer.occurrence = {severity * (1 + random.below(4)), severity * (20 + random.below(200))};
    layer.aggregate = {severity * (5 + random.below(20)), severity * (500 + random.below(2000))};
    portfolio.layers.push_back(layer);
  }
  for (std::uint32_t t = 0; t < layers * tables_each; ++t) {
    portfolio.table_terms.push_back({severity * random.below(3), severity * 1000});
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
  const std::uint64_t catalogue = options.number("events");
  std::string line;
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    line.clear();
    const std::uint64_t count = mean / 2 + random.below(mean + 1);
    for (std::uint64_t e = 0; e < count; ++e) {
      // Of two events the one with the smaller number: small numbers happen more often.
      const std::uint32_t first = random.below(catalogue);
      const std::uint32_t second = random.below(catalogue);
      line += (e == 0 ? "" : ",") + std::to_string(first < second ? first : second);
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
