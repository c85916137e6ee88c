// The program `risk`: trials on the host, their losses on the device, what they mean on the host.
#include "workloads/risk/risk.hpp"

#include "workloads/sharing/device.hpp"
#include "workloads/sharing/fasta.hpp"
#include "workloads/sharing/random.hpp"
#include "workloads/sharing/turn.hpp"

#include <algorithm>
#include <array>
#include <functional>

namespace {

constexpr std::array<std::size_t, 6> return_periods = {10, 50, 100, 250, 500, 1000};

std::vector<Money> dense_tables(const Portfolio& portfolio) {
  std::vector<Money> losses(portfolio.tables.size() * portfolio.catalogue);
  for (std::size_t t = 0; t < portfolio.tables.size(); ++t) {
    for (const EventLoss& each : portfolio.tables[t]) {
      losses[t * portfolio.catalogue + each.event] = each.loss;
    }
  }
  return losses;
}

template <typename T>
std::size_t bytes_of(const std::vector<T>& values) {
  return DeviceMemory::rounded(values.size() * sizeof(T));
}

std::size_t data_size_bytes(const Portfolio& portfolio, const Trials& trials) {
  return bytes_of(trials.first_event) + bytes_of(trials.events) +
         DeviceMemory::rounded(portfolio.tables.size() * portfolio.catalogue * sizeof(Money)) +
         bytes_of(portfolio.table_terms) + bytes_of(portfolio.layers) +
         DeviceMemory::rounded(trials.count() * sizeof(Money));
}

std::vector<Money> compute(Device& device,
                           std::size_t memory_bytes,
                           const Portfolio& portfolio,
                           const Trials& trials) {
  DeviceMemory memory(device, memory_bytes);
  RiskWork work{};
  work.first_event = memory.copy_in(trials.first_event);
  work.events = memory.copy_in(trials.events);
  work.losses = memory.copy_in(dense_tables(portfolio));
  work.table_terms = memory.copy_in(portfolio.table_terms);
  work.layers = memory.copy_in(portfolio.layers);
  work.layer_count = static_cast<std::uint32_t>(portfolio.layers.size());
  work.catalogue = portfolio.catalogue;
  work.year_losses = memory.cut<Money>(trials.count());
  run_work(device, work, trials.count());
  return memory.copy_out(work.year_losses, trials.count());
}

void answer(const std::vector<Money>& losses, Result& result) {
  Checksum checksum;
  for (const Money loss : losses) {
    checksum.add(static_cast<std::uint64_t>(loss));
  }
  result.checksum = checksum.text();
  for (const std::size_t years : return_periods) {
    if (years <= losses.size()) {
      result.answer += (result.answer.empty() ? "{\"" : ", \"") + std::to_string(years) +
                       "\": " + std::to_string(probable_maximum_loss(losses, years));
    }
  }
  result.answer =
      "{\"probable_maximum_loss\": " + (result.answer.empty() ? std::string("{") : result.answer) +
      "}}";
}

}  // namespace

std::vector<NumberOption> risk_options() {
  return {{"trials", 150'000, 1, 100'000'000, "simulated years"},
          {"per-trial", 500, 1, 100'000, "events of a trial, on average"},
          {"events", 1000, 1, 10'000'000, "kinds of events"},
          {"layers", 4, 1, 1000, "contracts"},
          {"tables", 4, 1, 1000, "event loss tables of a layer"}};
}

Money probable_maximum_loss(std::vector<Money> year_losses, std::size_t years) {
  const auto place =
      year_losses.begin() + static_cast<std::ptrdiff_t>(year_losses.size() / years) - 1;
  std::nth_element(year_losses.begin(), place, year_losses.end(), std::greater<>());
  return *place;
}

Result run_risk(const Options& options) {
  Result result;
  Turn turn(options);
  const Portfolio portfolio = make_portfolio(options);
  const ScratchFile file = make_scratch_file();
  write_trials(file.get(), options);
  result.phases.end("simulate");
  rewind_to_read(file.get());
  const Trials trials = read_trials(file.get(), portfolio.catalogue);
  result.phases.end("read");
  result.data_bytes = data_size_bytes(portfolio, trials);
  result.memory_bytes = memory_to_hold(options, result.data_bytes);
  turn.take(result.memory_bytes);
  result.phases.end("wait");
  result.device = turn.device();
  const std::unique_ptr<Device> device = open_device(result.device);
  result.phases.end("context");
  const std::vector<Money> losses = compute(*device, result.memory_bytes, portfolio, trials);
  turn.give(result.memory_bytes);
  result.phases.end("device");
  answer(losses, result);
  result.phases.end("answer");
  if (options.check()) {
    for (std::size_t t = 0; t < losses.size(); t += check_step(options, losses.size())) {
      ++result.checked;
      result.wrong += losses[t] == year_loss_by_the_book(portfolio, trials, t) ? 0 : 1;
    }
    result.phases.end("check");
  }
  return result;
}
