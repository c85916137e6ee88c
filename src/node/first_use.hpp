// Waiting for a command's reservation where a program allocates that knows nothing of it.
#pragma once

#include "node/account.hpp"
#include "node/node.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace hippogriff::node {

// Claims what the leader left for its first use. Thread-safe; node and account must outlive it.
class FirstUse {
 public:
  // `device` is the node's and was added under that UUID. `node` may be null where the account
  // follows nobody: then there is nothing to claim.
  FirstUse(Node* node,
           Account& account,
           std::uint32_t device,
           std::string uuid,
           std::chrono::milliseconds timeout);

  // Waits where that is needed; false when the reservation is not there. Says on stderr what is
  // waited for when it takes long, and why it failed.
  [[nodiscard]] bool claim() const noexcept;

  [[nodiscard]] Account& account() const { return *account_; }

 private:
  void look_around(std::chrono::steady_clock::time_point began,
                   std::chrono::steady_clock::time_point& looked,
                   bool& told) const;

  Node* node_;
  Account* account_;
  std::uint32_t device_;
  std::string uuid_;
  std::chrono::milliseconds timeout_;
};

}  // namespace hippogriff::node
