// What the node knows, as JSON for people and scripts.
#pragma once

#include "transfer/node_share.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace hippogriff {

// "fifo", "mmu", "priority-fifo", "priority-mmu", "aging-mmu".
std::string_view policy_name(node::Policy policy) noexcept;
std::optional<node::Policy> parse_policy(std::string_view name) noexcept;

// See hippogriff_node_status.
std::string node_json(NodeShare& share);

}  // namespace hippogriff
