// What the transfers that other processes show on the node mean for one of ours. Pure.
#pragma once

#include "node/transfers.hpp"
#include "transfer/route.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace hippogriff {

// Where a transfer goes through.
struct TransferWay {
  std::uint64_t device = 0;  // node::device_key of its name
  std::string drive;         // drive_key; "": none
  Direction direction = Direction::send;
};

// Whether the transfer has anything to do with a drive: not when all of it is in memory.
[[nodiscard]] bool uses_drive(const TransferFacts& facts);

// Adds the others to the load.
void add_others(TransferLoad& load,
                std::span<const node::SeenTransfer> others,
                const TransferWay& way,
                std::int64_t now_ns);

// Whether any of them moves data from or to the drive and on, "": none.
[[nodiscard]] bool any_needs_drive(std::span<const node::SeenTransfer> others,
                                   const std::string& drive);

// Whether any of them has a part in what our transfer gets.
[[nodiscard]] bool any_others(const TransferLoad& load);

// What the plan is, in words for others.
void describe_plan(node::ShownTransfer& shown, Route route, const Plan& plan);

}  // namespace hippogriff
