// The ledger of a command's processes: together they use what `hippogriff run` reserved for it.
#pragma once

#include "shim/ledger.hpp"

namespace hippogriff::shim {

// Null when HIPPOGRIFF_RESERVATION names none, or the node is off; where it
// names one that cannot be followed, a ledger that grants nothing. Never destroyed. `context_bytes`
// 0: what a context takes is asked of NVML.
Ledger* make_node_ledger(std::uint64_t context_bytes) noexcept;

}  // namespace hippogriff::shim
