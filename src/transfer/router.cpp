// Plans every route for a transfer, predicts what each would cost, and picks one.
#include "transfer/router.hpp"

#include "base/error.hpp"
#include "transfer/cost_model.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace hippogriff {
namespace {

// Within this of the fastest, the route with fewer CPU seconds wins.
constexpr double route_tolerance = 1.10;

// The same between plans of the pipelined route: mapped windows beside the reads, or none.
constexpr double mix_tolerance = 1.05;
static_assert(mix_tolerance <= route_tolerance, "else the fastest plan's own route might not fit");

// The plan a route would use, and how fast the fastest of its plans is.
struct Offer {
  Plan plan;
  PlanCost cost{.seconds = std::numeric_limits<double>::infinity(), .cpu_seconds = 0};
  double fastest_seconds = std::numeric_limits<double>::infinity();
};

Offer offer_of(const CostModel& model, Route route, const Plan& plan) {
  const PlanCost cost = model.cost(route, plan);
  return {.plan = plan, .cost = cost, .fastest_seconds = cost.seconds};
}

// The fastest of `base` with 1 to `most` in one of its fields. More channels start later and finish
// sooner. The second costs more to start than the next, so that only beyond the third one that does
// not help ends the search.
Offer fastest_width(const CostModel& model,
                    Route route,
                    Plan base,
                    std::uint32_t Plan::* width,
                    std::uint32_t most) {
  Offer best;
  for (std::uint32_t channels = 1; channels <= std::max(most, 1u); ++channels) {
    base.*width = channels;
    const Offer offer = offer_of(model, route, base);
    if (offer.cost.seconds < best.cost.seconds) {
      best = offer;
    } else if (channels > 3) {
      break;
    }
  }
  return best;
}

Offer faster(const Offer& left, const Offer& right) {
  return right.cost.seconds < left.cost.seconds ? right : left;
}

bool bounded(const TransferFacts& facts) {
  return facts.slots_max != any_slots;
}

// So many channels have their slots beside `depth` requests.
std::uint32_t channels_beside(std::uint32_t depth, const TransferFacts& facts) {
  return (facts.slots_max - std::min(depth, facts.slots_max)) / EngineShape::slots_per_channel;
}

// The drive's depth beside `channels`: a slot for each, which is a part of what it wants.
std::uint32_t depth_beside(std::uint32_t channels,
                           const CostModel& model,
                           const TransferFacts& facts) {
  return std::min(model.depth_wanted(model.cold_bytes()),
                  facts.slots_max - channels * EngineShape::slots_per_channel);
}

bool room_for_two_lanes(const TransferFacts& facts) {
  return facts.slots_max >= 2 * EngineShape::slots_per_channel;
}

// One buffered read serves small extents best, wherever they are: no queue to start.
Offer simple_send(const CostModel& model) {
  return offer_of(model, Route::pipelined, {.buffered_channels = 1});
}

// Page cache by the CPU and drive by direct requests, at the same time.
Offer read_send(const CostModel& model, const TransferFacts& facts) {
  const bool cold = model.cold_bytes() > 0;
  const bool mixed = cold && model.cached_bytes() > 0;
  const std::uint32_t channels = model.channels_available();
  Plan plan;
  std::uint32_t most = model.channels_wanted(0, channels);
  if (cold && facts.direct_io && (!mixed || room_for_two_lanes(facts))) {
    plan.direct_io_depth = depth_beside(mixed ? 1 : 0, model, facts);
    if (!mixed) {
      return offer_of(model, Route::pipelined, plan);
    }
  } else if (cold) {
    // Threads that wait for the drive need no core, so there may be more of them.
    most = std::max(channels, model.blocking_channels_wanted());
  }
  most = std::min(most, channels_beside(plan.direct_io_depth, facts));
  return fastest_width(model, Route::pipelined, plan, &Plan::buffered_channels, most);
}

// Mapped windows from the end of the extent while channels read from its start.
Offer mixed_send(const CostModel& model, const TransferFacts& facts) {
  Plan plan{.mapped_channels = 1};
  const bool cold = model.cold_bytes() > 0;
  const bool possible = facts.can_map && facts.can_mix && model.cached_bytes() > 0 &&
                        model.channels_available() > 1 && model.mapping_outruns_a_channel() &&
                        (!cold || (facts.direct_io && room_for_two_lanes(facts)));
  if (!possible) {
    return {};
  }
  if (cold) {
    plan.direct_io_depth = depth_beside(1, model, facts);
  }
  const std::uint32_t channels = model.channels_available() - 1;
  const std::uint32_t most =
      std::min(model.channels_wanted(1, channels), channels_beside(plan.direct_io_depth, facts));
  return fastest_width(model, Route::pipelined, plan, &Plan::buffered_channels, most);
}

Offer pipelined_send(const CostModel& model, const TransferFacts& facts) {
  const Offer simple = simple_send(model);
  const Offer read = read_send(model, facts);
  const Offer mixed = mixed_send(model, facts);
  Offer offer = faster(faster(simple, read), mixed);
  const double fastest = offer.fastest_seconds;
  // Held against both ways to read: else a larger extent could go back from the mix to a faster
  // plan.
  const bool leaner =
      mixed.cost.cpu_seconds < std::min(simple.cost.cpu_seconds, read.cost.cpu_seconds);
  if (leaner && mixed.cost.seconds <= mix_tolerance * fastest) {
    offer = mixed;
    offer.fastest_seconds = fastest;
  }
  return offer;
}

Offer pipelined_recv(const CostModel& model, const TransferFacts& facts) {
  const std::uint32_t channels = std::min(model.channels_available(), channels_beside(0, facts));
  Plan drive{.direct_io_depth = depth_beside(0, model, facts)};
  if (facts.in_memory && facts.can_write_mapped &&
      channels >= EngineShape::mapped_write_channels_min) {
    const Offer one = offer_of(model, Route::pipelined, {.buffered_channels = 1});
    const std::uint32_t wanted = std::min(
        channels,
        std::max(model.channels_wanted(0, channels), EngineShape::mapped_write_channels_min));
    return faster(one, offer_of(model, Route::pipelined, {.buffered_channels = wanted}));
  }
  if (facts.in_memory || !facts.direct_io) {
    return fastest_width(
        model, Route::pipelined, {}, &Plan::buffered_channels, model.channels_wanted(0, channels));
  }
  const Offer direct_io = offer_of(model, Route::pipelined, drive);
  if (static_cast<double>(facts.size_bytes) > EngineShape::absorbed_bytes) {
    return direct_io;
  }
  return faster(direct_io, offer_of(model, Route::pipelined, {.buffered_channels = 1}));
}

Offer mapped(const CostModel& model, const TransferFacts& facts) {
  Plan plan;
  if (model.cold_bytes() > 0 && facts.direct_io) {
    plan.direct_io_depth = depth_beside(0, model, facts);
  }
  // The driver registers pages of one file on a drive at a time: more threads would only wait.
  const std::uint32_t most =
      facts.in_memory ? std::min(model.channels_available(), EngineShape::mapped_channels_max) : 1;
  return fastest_width(model, Route::mapped, plan, &Plan::mapped_channels, most);
}

Offer direct(const CostModel& model, const TransferFacts& facts) {
  const bool waits = !facts.host_addressable || model.cold_bytes() > 0;
  return fastest_width(model,
                       Route::direct,
                       {},
                       &Plan::direct_channels,
                       std::max(waits ? model.blocking_channels_wanted() : 1,
                                facts.host_addressable ? model.channels_available() : 1));
}

// Who bounds the host memory is taken to want little of it: then nothing is parked unasked, and
// half of it is for the lanes.
Offer parked(const CostModel& model, const TransferFacts& given, Route forced) {
  TransferFacts facts = given;
  Plan plan{.park = !bounded(facts) || forced == Route::parked};
  if (bounded(facts) && plan.park) {
    facts.slots_max = std::max(facts.slots_max / 2, EngineShape::slots_per_channel);
  }
  const bool mixed = model.cold_bytes() > 0 && model.cached_bytes() > 0;
  if (model.cold_bytes() > 0 && facts.direct_io && (!mixed || room_for_two_lanes(facts))) {
    plan.direct_io_depth = depth_beside(mixed ? 1 : 0, model, facts);
    if (!mixed) {
      return offer_of(model, Route::parked, plan);
    }
  }
  const std::uint32_t most =
      std::min(model.channels_available(), channels_beside(plan.direct_io_depth, facts));
  return fastest_width(model, Route::parked, plan, &Plan::buffered_channels, most);
}

Offer offer_for(Route route, const CostModel& model, const TransferFacts& facts, Route forced) {
  switch (route) {
    case Route::direct:
      return direct(model, facts);
    case Route::mapped:
      return mapped(model, facts);
    case Route::parked:
      return parked(model, facts, forced);
    case Route::automatic:
    case Route::pipelined:
      break;
  }
  return facts.direction == Direction::send ? pipelined_send(model, facts)
                                            : pipelined_recv(model, facts);
}

std::uint32_t width(const Plan& plan) {
  return plan.direct_channels + plan.mapped_channels + plan.buffered_channels +
         plan.direct_io_depth;
}

// The offer, unless it is wider than the plan that would be taken without other processes: then
// that one, with the share of the drive's requests. The search for a width may end in another place
// where rates are lower.
Offer no_wider(const Offer& offer, Plan most, const CostModel& model, Route route) {
  if (width(offer.plan) <= width(most) && offer.plan.direct_io_depth <= most.direct_io_depth) {
    return offer;
  }
  if (most.direct_io_depth > 0) {
    most.direct_io_depth = std::min(most.direct_io_depth, model.depth_wanted(model.cold_bytes()));
  }
  return offer_of(model, route, most);
}

std::string or_else(const std::string& sentence, const char* otherwise) {
  return sentence.empty() ? otherwise : sentence;
}

// Why a route cannot be taken at all; "" when it can.
std::string obstacle(Route route, const TransferFacts& facts) {
  if (route == Route::direct && !facts.can_direct) {
    return or_else(facts.why_not_direct,
                   "the drive and the device cannot talk to each other without host memory");
  }
  if (route != Route::mapped) {
    return "";
  }
  if (!facts.can_map) {
    return or_else(facts.why_not_map, "the device cannot register pages of this file");
  }
  if (facts.direction == Direction::recv && !facts.in_memory) {
    return "only files in memory (tmpfs) are mapped for writing";
  }
  return "";
}

// Why the automatic choice leaves a possible route out. The papers' two rules come before costs,
// because no cost tells how long the device stays full.
std::string held_back(Route route, const TransferFacts& facts, const CostModel& model) {
  if (route == Route::parked) {
    return "";
  }
  if (facts.direction == Direction::send && !facts.device_ready) {
    return "it would wait for the device, which is not ready; parked reads meanwhile";
  }
  if (facts.direction == Direction::recv && facts.parked_sends_wait) {
    return "sends wait for this device's memory, and parked frees it first";
  }
  if (route == Route::mapped && model.cached_bytes() <= 0 && facts.size_bytes > 0) {
    return "nothing of it is known to be in the page cache";
  }
  // Two cores read a cached file with 9.9 GB/s (tmpfs) and 11.5 (ext4) in place, with 4.2 and 4.9
  // through a mapping, at half as many CPU seconds again or twice as many.
  if (route == Route::mapped && facts.host_addressable && facts.can_direct &&
      facts.direction == Direction::send) {
    return "the host would copy from the pages that it maps, and direct reads without that";
  }
  if (route == Route::mapped && !facts.maps_aside) {
    return "it needs a second context on the device, which is not there yet "
           "(HIPPOGRIFF_MAPPED_AFTER says when it comes)";
  }
  return "";
}

RoutePrediction predict(Route route,
                        const CostModel& model,
                        const TransferFacts& facts,
                        Route forced,
                        const CostModel* without_others,
                        double& fastest_seconds) {
  RoutePrediction prediction;
  prediction.route = route;
  prediction.why_not = obstacle(route, facts);
  if (prediction.why_not.empty() && route != forced) {
    prediction.why_not = held_back(route, facts, model);
  }
  prediction.possible = prediction.why_not.empty();
  if (prediction.possible) {
    Offer offer = offer_for(route, model, facts, forced);
    if (without_others != nullptr) {
      const Plan most = offer_for(route, *without_others, facts, forced).plan;
      offer = no_wider(offer, most, model, route);
    }
    prediction.plan = offer.plan;
    prediction.seconds = offer.cost.seconds;
    prediction.cpu_seconds = offer.cost.cpu_seconds;
    fastest_seconds = std::min(fastest_seconds, offer.fastest_seconds);
  } else if (route == forced) {
    throw_unsupported("take the " + std::string(route_name(route)) + " route", prediction.why_not);
  }
  return prediction;
}

// The fewest CPU seconds among the possible routes that take at most `seconds_max`. Parked is for
// when the others are held back.
Route leanest(const RoutingDecision& decision, double seconds_max) {
  const RoutePrediction* best = nullptr;
  for (const RoutePrediction& prediction : decision.predictions) {
    const bool fits = prediction.possible && prediction.seconds <= seconds_max;
    if (!fits || (prediction.route == Route::parked && best != nullptr)) {
      continue;
    }
    if (best == nullptr || std::pair(prediction.cpu_seconds, prediction.seconds) <
                               std::pair(best->cpu_seconds, best->seconds)) {
      best = &prediction;
    }
  }
  HIPPO_ASSERT(best != nullptr);
  return best->route;
}

// A parked receive makes memory and copies to it beside its writes, so that those who wait have the
// device's memory sooner by what draining saves. That pays only when it saves half of the time. On
// an idle machine: a drive that is shared is as slow for those who come with the memory.
bool frees_soon(const TransferFacts& facts, const Calibration& calibration) {
  const CostModel idle(facts, {}, calibration);
  return 2 * idle.drain_seconds() <= pipelined_recv(idle, facts).cost.seconds;
}

}  // namespace

const RoutePrediction& RoutingDecision::choice() const {
  for (const RoutePrediction& prediction : predictions) {
    if (prediction.route == chosen) {
      return prediction;
    }
  }
  HIPPO_ASSERT(false && "nothing was chosen");
  return predictions.front();
}

TransferLoad without_others(TransferLoad load) {
  load.others_on_link = {};
  load.others_on_drive = {};
  return load;
}

RoutingDecision choose_route(const TransferFacts& given,
                             const TransferLoad& load,
                             const Calibration& calibration,
                             Route forced) {
  constexpr std::array routes = {Route::direct, Route::mapped, Route::pipelined, Route::parked};
  TransferFacts facts = given;
  facts.parked_sends_wait = given.direction == Direction::recv && given.parked_sends_wait &&
                            frees_soon(given, calibration);
  const CostModel model(facts, load, calibration);
  const CostModel alone(facts, without_others(load), calibration);
  const bool beside_others =
      load.others_on_drive.processes > 0 || load.others_on_link.processes > 0;
  RoutingDecision decision;
  decision.depth_measured = calibration.drive.measured;
  decision.channels_max = facts.channels_max;
  decision.drive_depth = std::clamp(calibration.drive.depth, 1U, facts.channels_max);
  decision.load = load;
  double fastest_seconds = std::numeric_limits<double>::infinity();
  for (std::size_t index = 0; index < routes.size(); ++index) {
    decision.predictions[index] = predict(
        routes[index], model, facts, forced, beside_others ? &alone : nullptr, fastest_seconds);
  }
  decision.chosen =
      forced == Route::automatic ? leanest(decision, route_tolerance * fastest_seconds) : forced;
  decision.channels_wait = facts.direction == Direction::send && model.cold_bytes() > 0 &&
                           decision.choice().plan.direct_io_depth == 0;
  return decision;
}

}  // namespace hippogriff
