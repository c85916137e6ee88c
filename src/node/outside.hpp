// What programs that take no part in the node use of a GPU, and what those use that wait.
#pragma once

#include "node/node_client.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace hippogriff::node {

// Asks NVML and tells the node; false where NVML does not know the GPU. `device` is the client's,
// added under that UUID. Some milliseconds. Throws Error as the node's operations do.
bool look_outside(NodeClient& node, std::uint32_t device, const std::string& uuid);

// What NVML says that a GPU has; nothing for what NVML does not know.
std::optional<std::uint64_t> capacity_of(const std::string& uuid);

// How many GPUs NVML knows that nobody has named to the node yet.
std::size_t unnamed_gpus(const NodeView& view);

// As look_outside, for one who waits and asks often: at most five times a second, at the first call
// too; what fails is asked again. For one thread. All must outlive it.
class OutsideLook {
 public:
  OutsideLook(NodeClient& node, std::uint32_t device, const std::string& uuid)
      : node_(node), device_(device), uuid_(uuid) {}

  OutsideLook(NodeClient&, std::uint32_t, std::string&&) = delete;

  void operator()() noexcept;

 private:
  NodeClient& node_;
  std::uint32_t device_;
  const std::string& uuid_;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace hippogriff::node
