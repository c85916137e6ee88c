// What a program asks of the node, whether it shares memory with it or asks a server.
#pragma once

#include "node/books.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hippogriff::node {

struct Request;
struct NodeView;

// What is used of a device beside what is reserved.
struct Unreserved {
  // By those whose reservation holds nothing yet.
  struct Early {
    std::uint64_t id = 0;  // of the reservation
    std::uint64_t used_bytes = 0;
  };

  std::uint64_t outside_bytes = 0;  // by programs that take no part
  std::uint64_t context_bytes = 0;  // what a context takes; 0: none was seen
  // Of all that use any; nothing where that is not known: then no less is kept for them.
  std::optional<std::vector<Early>> early = std::nullopt;
};

// `Node` has it in shared memory, `noded::Connection` over a socket; both are thread-safe, and what
// is reserved through one ends with it. The operations are described in node.hpp.
class NodeClient {
 public:
  NodeClient() = default;
  virtual ~NodeClient() = default;
  NodeClient(const NodeClient&) = delete;
  NodeClient& operator=(const NodeClient&) = delete;

  virtual std::uint32_t add_device(std::string_view name, std::uint64_t capacity_bytes) = 0;
  virtual void set_unreserved(std::uint32_t device, const Unreserved& use) = 0;
  virtual void set_policy(Policy policy, OvertakeBound bound) = 0;
  virtual std::uint64_t reserve(const Request& request) = 0;
  virtual void grow(std::uint64_t handle,
                    std::uint64_t size_bytes,
                    std::chrono::milliseconds timeout,
                    const std::function<bool()>& interrupted = nullptr) = 0;
  virtual void shrink(std::uint64_t handle, std::uint64_t size_bytes) = 0;
  virtual void release(std::uint64_t handle) = 0;
  [[nodiscard]] virtual NodeView view() = 0;

  // Groups: see Node.
  virtual std::string leader() = 0;
  virtual void hand_over() = 0;
  [[nodiscard]] virtual bool follows() const noexcept = 0;
  virtual bool take(std::uint32_t device, std::uint64_t size_bytes) noexcept = 0;
  virtual void give(std::uint32_t device, std::uint64_t size_bytes) noexcept = 0;
  virtual std::uint64_t defer(const Request& request) = 0;
  [[nodiscard]] virtual std::uint64_t deferred_bytes(std::uint32_t device) = 0;
  virtual void claim_deferred(std::uint32_t device,
                              std::chrono::milliseconds timeout,
                              const std::function<bool()>& interrupted = nullptr) = 0;
  virtual void grow_group(std::uint32_t device,
                          std::uint64_t size_bytes,
                          std::chrono::milliseconds timeout,
                          const std::function<bool()>& interrupted = nullptr) = 0;
  [[nodiscard]] virtual std::uint64_t granted_bytes(std::uint32_t device) noexcept = 0;
  [[nodiscard]] virtual std::uint64_t group_used_bytes(std::uint32_t device) noexcept = 0;
  virtual void show_used(std::uint32_t device, std::uint64_t size_bytes) noexcept = 0;
};

}  // namespace hippogriff::node
