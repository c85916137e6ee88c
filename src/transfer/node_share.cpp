// Names to devices, accounts to ledgers, and NVML's word about everybody else.
#include "transfer/node_share.hpp"

#include "base/error.hpp"
#include "device/cuda_device.hpp"
#include "device/nvml.hpp"
#include "node/fork_page.hpp"
#include "node/outside.hpp"
#include "noded/open_node.hpp"
#include "transfer/outlook.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff {

namespace {

constexpr std::chrono::milliseconds fresh_enough{100};
constexpr std::chrono::milliseconds look_interval{200};

std::string variable(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): see Settings
  return text != nullptr ? text : "";
}

class AccountLedger final : public MemoryLedger {
 public:
  AccountLedger(node::Account& account, bool grows) : account_(account), grows_(grows) {}

  // A forked child has the parent's device memory as a copy of its own, which nobody counts.
  bool take(std::uint64_t size_bytes) noexcept override {
    return page_.wiped() || account_.take(size_bytes) ||
           (grows_ && account_.follows() && account_.is_claimed() && take_growing(size_bytes));
  }

  void give(std::uint64_t size_bytes) noexcept override {
    if (!page_.wiped()) {
      account_.give(size_bytes);
    }
  }

 private:
  bool take_growing(std::uint64_t size_bytes) noexcept {
    std::string why;
    return account_.take_growing(size_bytes, std::chrono::milliseconds(0), why);
  }

  node::ForkPage page_;
  node::Account& account_;
  // Transfers wait for device memory themselves, and allocations by name do not.
  const bool grows_;
};

// Calls a function now and then while it lives; what that throws is for the next call.
class Refresher {
 public:
  template <typename Function>
  explicit Refresher(Function function)
      : thread_([this, function](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          while (!wake_.wait_for(lock, stop, look_interval, [] { return false; }) &&
                 !stop.stop_requested()) {
            try {
              function();
            } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the node may be busy
            }
          }
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

SharedDeviceFacts identify_cuda(int index) {
  const std::string name = "cuda:" + std::to_string(index);
  if (index >= cuda_presence().device_count) {
    throw_invalid(
        "find device",
        name,
        cuda_presence().device_count == 0 ? cuda_presence().why_not : "there is no such device");
  }
  const DeviceInfo info = describe_cuda_device(index);
  // NVML's sizes, which `hippogriff run` goes by: a context sees a little less of the memory.
  const auto facts = find_gpu(info.uuid);
  return {.name = name,
          .uuid = info.uuid,
          .model = info.model,
          .memory_bytes = facts ? facts->memory_bytes : info.memory_bytes};
}

}  // namespace

NodeShare::NodeShare(const NodeShareOptions& options)
    : address_(options.address.empty() ? node::SegmentPlace::parse("").path : options.address),
      command_(options.command),
      node_(noded::open_node(options.address, {}, command_.reservation)),
      segment_(dynamic_cast<node::Node*>(node_.get())) {}

std::optional<NodeShareOptions> NodeShareOptions::from_environment() {
  std::string address = variable("HIPPOGRIFF_NODE");
  if (address == "off") {
    return std::nullopt;
  }
  return NodeShareOptions{.address = std::move(address),
                          .command = noded::CommandVariables::read(variable)};
}

std::shared_ptr<NodeShare> NodeShare::from_environment() {
  const auto options = NodeShareOptions::from_environment();
  return options ? std::make_shared<NodeShare>(*options) : nullptr;
}

std::string NodeShare::segment_of_environment() {
  const std::string address = variable("HIPPOGRIFF_NODE");
  if (address == "off" || address.starts_with("unix:")) {
    throw_invalid("serve the node", "HIPPOGRIFF_NODE=" + address + " is no segment");
  }
  return address;
}

SharedDeviceFacts NodeShare::identify(const std::string& device) {
  std::string name = device.empty() ? variable("HIPPOGRIFF_DEVICE") : device;
  if (name.empty()) {
    name = cuda_presence().device_count > 0 ? "cuda:0" : "host";
  }
  if (name == "host") {
    return {.name = name,
            .uuid = name,
            .model = "host memory",
            .memory_bytes = host_memory_limit_bytes()};
  }
  if (const auto index = cuda_index(name)) {
    return identify_cuda(*index);
  }
  if (const auto facts = find_gpu(name)) {
    return {.name = name,
            .uuid = facts->uuid,
            .model = facts->model,
            .memory_bytes = facts->memory_bytes};
  }
  throw_invalid(
      "find device", name, "a device is called host, cuda:0, cuda:1, ..., or by a GPU's UUID");
}

node::Account& NodeShare::account(const SharedDeviceFacts& facts) {
  const std::scoped_lock turn(mutex_);
  const auto at = devices_.find(facts.uuid);
  if (at != devices_.end()) {
    return *at->second.account;
  }
  Device added{.facts = facts, .index = 0, .account = nullptr};
  added.index = node_->add_device(facts.uuid, facts.memory_bytes);
  added.account = std::make_unique<node::Account>(*node_, added.index);
  return *devices_.emplace(facts.uuid, std::move(added)).first->second.account;
}

std::shared_ptr<MemoryLedger> NodeShare::ledger(const SharedDeviceFacts& facts) {
  return std::make_shared<AccountLedger>(account(facts), command_.grows);
}

node::FirstUse NodeShare::first_use(const SharedDeviceFacts& facts) {
  node::Account& covers = account(facts);
  return {*node_, covers, device(facts.uuid).index, facts.uuid, command_.claim_timeout};
}

bool NodeShare::left_for_first_use() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): see Settings
  return std::getenv("HIPPOGRIFF_WAIT_MS") != nullptr &&
         noded::can_name_leader(variable("HIPPOGRIFF_NODE"), variable("HIPPOGRIFF_RESERVATION"));
}

bool NodeShare::waits_at_first_use() const {
  return left_for_first_use() && node_->follows();
}

NodeShare::Device& NodeShare::device(const std::string& uuid) {
  const std::scoped_lock turn(mutex_);
  const auto at = devices_.find(uuid);
  if (at == devices_.end()) {
    throw_invalid("use device", uuid, "nothing of it is reserved");
  }
  return at->second;
}

std::uint64_t NodeShare::reserve(const std::string& uuid, node::Request request) {
  Device& shared = device(uuid);
  look_outside(fresh_enough);
  const auto timeout = std::exchange(request.timeout, std::chrono::milliseconds(0));
  try {
    return shared.account->reserve(request);
  } catch (const Error& error) {
    if (error.failure().status != Status::busy || timeout.count() <= 0) {
      throw;
    }
  }
  request.timeout = timeout;
  const Refresher refresher([this] { look_outside(fresh_enough); });
  return shared.account->reserve(request);
}

std::uint64_t NodeShare::defer(const std::string& uuid, const node::Request& request) {
  return device(uuid).account->defer(request);
}

void NodeShare::resize(const std::string& uuid,
                       std::uint64_t handle,
                       std::uint64_t size_bytes,
                       std::chrono::milliseconds timeout,
                       const std::function<bool()>& interrupted) {
  Device& shared = device(uuid);
  look_outside(fresh_enough);
  const Refresher refresher([this] { look_outside(fresh_enough); });
  shared.account->resize(handle, size_bytes, timeout, interrupted);
}

void NodeShare::release(const std::string& uuid, std::uint64_t handle) {
  device(uuid).account->release(handle);
}

std::unique_ptr<node::TransferNotice> NodeShare::notice_transfer() const {
  return segment_ != nullptr ? segment_->notice_transfer() : nullptr;
}

std::unique_ptr<node::ArrayNotice> NodeShare::notice_array() const {
  return segment_ != nullptr ? segment_->notice_array() : nullptr;
}

std::vector<node::SeenTransfer> NodeShare::transfers_of_others() const {
  return segment_ != nullptr ? segment_->transfers_of_others() : std::vector<node::SeenTransfer>{};
}

std::uint64_t NodeShare::reserved_bytes(const std::string& uuid, std::uint64_t handle) {
  return device(uuid).account->reserved_bytes(handle);
}

void NodeShare::look_outside(std::chrono::milliseconds at_most_old) {
  std::vector<std::pair<std::string, std::uint32_t>> gpus;
  {
    const std::scoped_lock turn(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < at_most_old) {
      return;
    }
    looked_ = now;
    for (const auto& [uuid, shared] : devices_) {
      if (uuid.starts_with("GPU-")) {
        gpus.emplace_back(uuid, shared.index);
      }
    }
  }
  for (const auto& [uuid, index] : gpus) {
    node::look_outside(*node_, index, uuid);
  }
}

}  // namespace hippogriff
