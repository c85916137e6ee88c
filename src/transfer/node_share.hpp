// This process's part in the machine's node: reservations by device name, and what is used outside.
#pragma once

#include "device/host_device.hpp"
#include "node/account.hpp"
#include "node/first_use.hpp"
#include "node/node.hpp"
#include "noded/command_variables.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace hippogriff {

// A device as all processes of the machine know it.
struct SharedDeviceFacts {
  std::string name;  // to this process: "cuda:0", "host"
  std::string uuid;  // to all: "GPU-…", "host"
  std::string model;
  std::uint64_t memory_bytes = 0;
};

struct NodeShareOptions {
  std::string address;  // see open_node; empty: the user's segment
  noded::CommandVariables command = {};

  // As HIPPOGRIFF_NODE (a path, "unix:" and a server's; nothing where it is "off") and the
  // command's variables say. Throws Error(invalid_argument) for what they cannot say.
  static std::optional<NodeShareOptions> from_environment();
};

// Thread-safe. What it reserved ends with it.
class NodeShare {
 public:
  // Throws Error as node::Node does.
  explicit NodeShare(const NodeShareOptions& options);

  // Null where the node is off.
  static std::shared_ptr<NodeShare> from_environment();

  // The segment that HIPPOGRIFF_NODE names. Throws Error(invalid_argument) when it names none.
  static std::string segment_of_environment();

  // Whether this process's command left its reservation for its first use, as the environment says.
  static bool left_for_first_use();

  // "" is the default device: HIPPOGRIFF_DEVICE, else cuda:0 where there is a GPU, else host; also
  // a GPU's UUID. Throws Error(invalid_argument) for a device that is not there.
  static SharedDeviceFacts identify(const std::string& device);

  // Waits up to the timeout. Returns a handle for that device's other calls.
  std::uint64_t reserve(const std::string& uuid, node::Request request);
  // Leaves it for its first use; see node::Account::defer.
  std::uint64_t defer(const std::string& uuid, const node::Request& request);
  void resize(const std::string& uuid,
              std::uint64_t handle,
              std::uint64_t size_bytes,
              std::chrono::milliseconds timeout,
              const std::function<bool()>& interrupted = nullptr);
  void release(const std::string& uuid, std::uint64_t handle);
  // 0 once released.
  std::uint64_t reserved_bytes(const std::string& uuid, std::uint64_t handle);

  // Makes a device known, so that it can be reserved. Throws Error(invalid_argument) when other
  // programs use it with another size.
  node::Account& account(const SharedDeviceFacts& facts);
  // For the device that allocates: whatever it gives out is covered by reservations.
  std::shared_ptr<MemoryLedger> ledger(const SharedDeviceFacts& facts);

  // Whether this process is of a command that lives and left its reservation for its first use.
  [[nodiscard]] bool waits_at_first_use() const;
  // Of a device that allocates; must not outlive this.
  node::FirstUse first_use(const SharedDeviceFacts& facts);

  // Tells the node what programs that take no part use of the GPUs, if that was not told lately.
  void look_outside(std::chrono::milliseconds at_most_old);

  // For others to see a transfer of ours, or an array; null where the node is asked over a socket.
  [[nodiscard]] std::unique_ptr<node::TransferNotice> notice_transfer() const;
  [[nodiscard]] std::unique_ptr<node::ArrayNotice> notice_array() const;
  [[nodiscard]] std::vector<node::SeenTransfer> transfers_of_others() const;

  [[nodiscard]] node::NodeClient& node() { return *node_; }

  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  struct Device {
    SharedDeviceFacts facts;
    std::uint32_t index = 0;
    std::unique_ptr<node::Account> account;
  };

  Device& device(const std::string& uuid);

  const std::string address_;
  const noded::CommandVariables command_;
  const std::unique_ptr<node::NodeClient> node_;
  node::Node* const segment_;              // null where the node is asked over a socket
  std::mutex mutex_;                       // guards the map and the time
  std::map<std::string, Device> devices_;  // by UUID; nothing is ever removed
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace hippogriff
