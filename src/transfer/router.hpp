// Chooses the route of a transfer from measured costs and present load. Pure: no system calls, so
// that its choices are tested and simulated without hardware. (Gullfoss 4.2, Hippogriff III.B.)
#pragma once

#include "transfer/calibration.hpp"
#include "transfer/route.hpp"

#include <array>

namespace hippogriff {

// A choice and what it was chosen from: one prediction per route, in the order of hippogriff_route
// without `auto`: direct, mapped, pipelined, parked. Pipelined may include mapped windows beside
// the reads ("mapped+pipelined" in reports) where both are possible and the mix is predicted
// faster.
struct RoutingDecision {
  std::array<RoutePrediction, HIPPOGRIFF_ROUTE_COUNT - 1> predictions;
  Route chosen = Route::automatic;
  bool depth_measured = false;  // plans' direct_io_depth is what this drive was measured to want
  std::uint32_t channels_max = any_channels;  // no lane goes beyond that later
  std::uint32_t drive_depth = 1;  // requests that keep the drive busy: what a lane does alone
  TransferLoad load;              // that it was made for
  bool channels_wait = false;     // its plan has the page cache ask the drive for what it lacks

  [[nodiscard]] const RoutePrediction& choice() const;
};

// The load of this process alone.
[[nodiscard]] TransferLoad without_others(TransferLoad load);

// Thread-safe (a function of its arguments). The choice is never predicted more than 10 % slower
// than the fastest possible route; within these 10 % the one with fewer CPU seconds wins. Parked is
// chosen only where the papers' rules hold the others back (their why_not says so). Beside other
// processes each gets an equal share of link and drive, and no route's plan is wider than it would
// be without them. `forced` other than automatic is taken if possible, else Error(unsupported) says
// why not.
RoutingDecision choose_route(const TransferFacts& given,
                             const TransferLoad& load,
                             const Calibration& calibration,
                             Route forced);

}  // namespace hippogriff
