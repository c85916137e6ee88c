// What a program asks of the node, whether it shares memory with it or asks a server.
#pragma once

#include "node/books.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

namespace hippogriff::node {

struct Request;
struct NodeView;

// `Node` has it in shared memory, `noded::Connection` over a socket; both are thread-safe, and what
// is reserved through one ends with it. The operations are described in node.hpp.
class NodeClient {
 public:
  NodeClient() = default;
  virtual ~NodeClient() = default;
  NodeClient(const NodeClient&) = delete;
  NodeClient& operator=(const NodeClient&) = delete;

  virtual std::uint32_t add_device(std::string_view name, std::uint64_t capacity_bytes) = 0;
  virtual void set_outside(std::uint32_t device, std::uint64_t size_bytes) = 0;
  virtual void set_policy(Policy policy, OvertakeBound bound) = 0;
  virtual std::uint64_t reserve(const Request& request) = 0;
  virtual void grow(std::uint64_t handle,
                    std::uint64_t size_bytes,
                    std::chrono::milliseconds timeout,
                    const std::function<bool()>& interrupted = nullptr) = 0;
  virtual void shrink(std::uint64_t handle, std::uint64_t size_bytes) = 0;
  virtual void release(std::uint64_t handle) = 0;
  [[nodiscard]] virtual NodeView view() = 0;
};

}  // namespace hippogriff::node
