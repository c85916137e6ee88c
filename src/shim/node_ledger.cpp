// An account for each device the command has a reservation of, opened at its first use.
#include "shim/node_ledger.hpp"

#include "device/nvml.hpp"
#include "node/account.hpp"
#include "node/complaints.hpp"
#include "node/first_use.hpp"
#include "node/node.hpp"
#include "node/outside.hpp"
#include "noded/command_variables.hpp"
#include "noded/open_node.hpp"
#include "shim/driver_api.hpp"
#include "shim/process_ledger.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>

namespace hippogriff::shim {
namespace {

std::string variable(const char* name) {
  const char* text = ::secure_getenv(name);
  return text != nullptr ? text : "";
}

constexpr const char* ended_text = "hippogriff: the reservation of this command has ended\n";

// As NVML prints it; empty when the driver does not say.
std::string uuid_of(int device) {
  CUuuid uuid{};
  if (HIPPO_REAL(cuDeviceGetUuid_v2)(&uuid, device) != CUDA_SUCCESS) {
    return {};
  }
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t index = 0; index < sizeof uuid.bytes; ++index) {
    if (index == 4 || index == 6 || index == 8 || index == 10) {
      text += '-';
    }
    const auto byte = static_cast<unsigned char>(uuid.bytes[index]);
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

// One process's part. A forked child leaves its parent's alone and makes another.
struct Share {
  static constexpr int devices_max = 64;

  struct Device {
    std::string uuid;
    std::uint32_t index = 0;                 // the node's
    std::unique_ptr<node::Account> account;  // null: nothing of it is reserved
    std::optional<node::FirstUse> first_use;
  };

  const std::unique_ptr<node::NodeClient> node;
  std::mutex opening;
  std::array<std::atomic<Device*>, devices_max> devices{};

  const std::chrono::milliseconds claim_timeout;

  Share(const std::string& address, const noded::CommandVariables& command)
      : node(noded::open_node(address, {}, command.reservation)),
        claim_timeout(command.claim_timeout) {}

  // Throws Error when the node cannot be asked.
  Device* open(int index) {
    const std::scoped_lock one_at_a_time(opening);
    auto& place = devices.at(static_cast<std::size_t>(index));
    if (Device* opened = place.load(std::memory_order_acquire)) {
      return opened;
    }
    auto made = std::make_unique<Device>();
    made->uuid = uuid_of(index);
    const node::NodeView view = node->view();
    const auto record = std::ranges::find(
        view.devices, std::string_view(made->uuid), &node::DeviceRecord::name_view);
    if (record != view.devices.end()) {
      const std::uint32_t known = node->add_device(made->uuid, record->capacity_bytes);
      made->index = known;
      auto account = std::make_unique<node::Account>(*node, known);
      if (account->follows()) {
        made->first_use.emplace(*node, *account, known, made->uuid, claim_timeout);
        made->account = std::move(account);
      }
    }
    place.store(made.get(), std::memory_order_release);
    return made.release();
  }

  Device* device(int index) {
    if (index < 0 || index >= devices_max) {
      return nullptr;
    }
    Device* opened = devices.at(static_cast<std::size_t>(index)).load(std::memory_order_acquire);
    return opened != nullptr ? opened : open(index);
  }
};

class NodeLedger final : public Ledger {
 public:
  NodeLedger(std::string address, noded::CommandVariables command, std::uint64_t context_bytes)
      : address_(std::move(address)),
        command_(std::move(command)),
        context_bytes_(context_bytes),
        share_(new Share(address_, command_)) {}

  [[nodiscard]] bool follows() noexcept { return share_.load()->node->follows(); }

  bool take(int device, std::uint64_t size_bytes, Patience patience) noexcept override {
    const Share::Device* known = known_device(device);
    if (known == nullptr || known->account == nullptr) {
      return false;
    }
    node::Account* account = known->account.get();
    if (account->take(size_bytes)) {
      return true;
    }
    if (!follows()) {
      tell_that_it_ended();
      return false;
    }
    // What never fits waits for nothing.
    if (patience == Patience::none || (!command_.grows && size_bytes > account->limit_bytes()) ||
        !known->first_use->claim(complaints_)) {
      return false;
    }
    if (account->take(size_bytes)) {
      return true;
    }
    if (!command_.grows) {
      return false;
    }
    std::string why;
    node::OutsideLook look_outside(*share_.load()->node, known->index, known->uuid);
    const bool taken = account->take_growing(size_bytes, growth_patience, why, [&] {
      look_outside();
      return false;
    });
    if (!taken) {
      complaints_.say(why.c_str());
    }
    return taken;
  }

  void give(int device, std::uint64_t size_bytes) noexcept override {
    if (node::Account* account = account_of(device)) {
      account->give(size_bytes);
    }
  }

  // Of a device the command has no reservation of: nothing.
  [[nodiscard]] std::uint64_t size_bytes(int device) const noexcept override {
    const node::Account* account = account_of(device);
    return account != nullptr ? account->limit_bytes() : 0;
  }

  // By all processes of the command: what is left of the size is what this one can have.
  [[nodiscard]] std::uint64_t used_bytes(int device) const noexcept override {
    const node::Account* account = account_of(device);
    return account != nullptr ? account->group_used_bytes() : 0;
  }

  [[nodiscard]] bool is_claimed(int device) const noexcept override {
    const node::Account* account = account_of(device);
    return account == nullptr || account->is_claimed();
  }

  // What NVML counts for this process beyond what is in the books, asked when a context is new.
  [[nodiscard]] std::uint64_t context_bytes(int device) const noexcept override {
    if (context_bytes_ != 0) {
      return context_bytes_;
    }
    const Share::Device* known = known_device(device);
    if (known == nullptr || known->account == nullptr) {
      return 0;
    }
    try {
      for (const GpuProcess& process : gpu_processes(known->uuid)) {
        if (process.pid == static_cast<std::uint64_t>(::getpid())) {
          const std::uint64_t used_bytes = process.used_bytes.value_or(0);
          return used_bytes - std::min(used_bytes, known->account->used_bytes());
        }
      }
    } catch (...) {
      return 0;
    }
    return 0;
  }

  void forked() noexcept override { share_ = nullptr; }

 private:
  // Null when the node cannot be joined: then nothing is granted.
  [[nodiscard]] Share* share_of_process() const noexcept {
    if (Share* share = share_.load(std::memory_order_acquire)) {
      return share;
    }
    try {
      auto made = std::make_unique<Share>(address_, command_);
      Share* none = nullptr;
      if (share_.compare_exchange_strong(none, made.get(), std::memory_order_acq_rel)) {
        return made.release();
      }
      return none;
    } catch (...) {
      return nullptr;
    }
  }

  [[nodiscard]] const Share::Device* known_device(int device) const noexcept {
    try {
      Share* share = share_of_process();
      return share != nullptr ? share->device(device) : nullptr;
    } catch (...) {
      return nullptr;
    }
  }

  [[nodiscard]] node::Account* account_of(int device) const noexcept {
    const Share::Device* known = known_device(device);
    return known != nullptr ? known->account.get() : nullptr;
  }

  void tell_that_it_ended() noexcept {
    if (!told_.exchange(true)) {
      std::fputs(ended_text, stderr);
    }
  }

  // Longer than any program runs.
  static constexpr std::chrono::milliseconds growth_patience = std::chrono::hours(24 * 365);

  const std::string address_;
  const noded::CommandVariables command_;
  const std::uint64_t context_bytes_;
  std::atomic<bool> told_{false};
  node::Complaints complaints_;
  mutable std::atomic<Share*>
      share_;  // never destroyed: others free memory while the process exits
};

}  // namespace

Ledger* make_node_ledger(std::uint64_t context_bytes) noexcept {
  try {
    const std::string address = variable("HIPPOGRIFF_NODE");
    if (address == "off") {
      return nullptr;  // and the other variables of a command mean nothing, as to the library
    }
    const auto command = noded::CommandVariables::read(variable);
    if (!noded::can_name_leader(address, command.reservation)) {
      return nullptr;
    }
    auto ledger = std::make_unique<NodeLedger>(address, command, context_bytes);
    if (ledger->follows()) {
      return ledger.release();
    }
    std::fputs(ended_text, stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hippogriff: no device memory: %s\n", error.what());
  }
  // What was reserved is shared: without the node nobody knows how much of it is left.
  alignas(ProcessLedger) static unsigned char memory[sizeof(ProcessLedger)];
  return new (memory) ProcessLedger(0, 0);
}

}  // namespace hippogriff::shim
