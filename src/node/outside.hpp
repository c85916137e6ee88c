// What programs that take no part in the node use of a GPU, and what those use that wait.
#pragma once

#include "node/node_client.hpp"

#include <cstdint>
#include <string>

namespace hippogriff::node {

// Asks NVML and tells the node; nothing where NVML does not know the GPU. `device` is the client's,
// added under that UUID. Some milliseconds. Throws Error as the node's operations do.
void look_outside(NodeClient& node, std::uint32_t device, const std::string& uuid);

}  // namespace hippogriff::node
