// What programs that take part use is covered by what they, or their leader, have reserved, and not
// beyond that. NVML knows what a process uses, and where it does not (another pid namespace) the
// process itself says what it allocated. What a command uses that was promised nothing yet are
// contexts: they are kept for it, and one for each that has none.
#include "node/outside.hpp"

#include "device/nvml.hpp"
#include "node/node.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace hippogriff::node {

namespace {

constexpr std::chrono::milliseconds look_interval{200};
// More than any context takes: it is something else.
constexpr std::uint64_t context_bytes_max = std::uint64_t{2} << 30U;

// What a GPU has in use at one time, and what each process has of it, no more than then.
struct Snapshot {
  std::uint64_t used_bytes = 0;
  std::vector<GpuProcess> processes;
};

void lower_to(std::vector<GpuProcess>& processes, const std::vector<GpuProcess>& others) {
  for (GpuProcess& process : processes) {
    const auto other = std::ranges::find(others, process.pid, &GpuProcess::pid);
    const std::uint64_t used_bytes = other != others.end() ? other->used_bytes : 0;
    process.used_bytes = std::min(process.used_bytes, used_bytes);
  }
}

// NVML tells the one after the other, while programs allocate. Processes that had more than the GPU
// when it was asked would hide as much of what is used outside, and that would be promised twice.
std::optional<Snapshot> take_snapshot(const std::string& uuid) {
  Snapshot seen{.processes = gpu_processes(uuid)};
  for (int left = 4; left > 0; --left) {
    const auto facts = find_gpu(uuid);
    if (!facts) {
      return std::nullopt;
    }
    const std::vector<GpuProcess> before = std::exchange(seen.processes, gpu_processes(uuid));
    seen.used_bytes = facts->used_bytes;
    if (seen.processes == before) {
      break;
    }
    if (left == 1) {
      lower_to(seen.processes, before);
    }
  }
  return seen;
}

// What a leader and those who follow it use of a device.
struct Use {
  std::uint64_t told_bytes = 0;
  std::uint64_t seen_bytes = 0;
  std::uint64_t most_of_one_bytes = 0;  // seen of a process
  std::uint64_t reserved_bytes = 0;
  std::set<std::uint64_t> pids;
};

using Groups = std::map<std::uint32_t, Use>;  // by leader

// Also of one that follows and has a reservation itself, where its leader has none of the device.
std::uint32_t leader_of(const NodeView& view, std::uint32_t client) {
  const auto at = std::ranges::find(view.clients, client, &NodeView::Client::client);
  return at != view.clients.end() ? at->leader : client;
}

Groups groups_of(const NodeView& view, std::size_t device, const std::vector<GpuProcess>& seen) {
  Groups groups;
  for (const NodeView::Client& client : view.clients) {
    Use& use = groups[client.leader];
    const std::uint64_t told = device < client.used_bytes.size() ? client.used_bytes[device] : 0;
    use.told_bytes += told;
    const auto process = std::ranges::find(seen, client.pid, &GpuProcess::pid);
    if (process == seen.end() || process->used_bytes == 0) {
      use.seen_bytes += told;
    } else if (use.pids.insert(client.pid).second) {  // A process may have several slots.
      use.seen_bytes += process->used_bytes;
      use.most_of_one_bytes = std::max(use.most_of_one_bytes, process->used_bytes);
    }
  }
  for (const NodeView::Reservation& reservation : view.reservations) {
    if (reservation.record.device == device) {
      groups[leader_of(view, reservation.record.client)].reserved_bytes +=
          reservation.record.size_bytes;
    }
  }
  return groups;
}

}  // namespace

std::optional<std::uint64_t> capacity_of(const std::string& uuid) {
  const auto facts = find_gpu(uuid);
  return facts ? std::optional(facts->memory_bytes) : std::nullopt;
}

std::size_t unnamed_gpus(const NodeView& view) {
  const std::vector<GpuFacts> gpus = list_gpus();
  return static_cast<std::size_t>(std::ranges::count_if(gpus, [&](const GpuFacts& gpu) {
    return std::ranges::find(view.devices, std::string_view(gpu.uuid), &DeviceRecord::name_view) ==
           view.devices.end();
  }));
}

bool look_outside(NodeClient& node, std::uint32_t device, const std::string& uuid) {
  const NodeView view = node.view();
  const auto snapshot = take_snapshot(uuid);
  if (!snapshot) {
    return false;
  }
  const auto record =
      std::ranges::find(view.devices, std::string_view(uuid), &DeviceRecord::name_view);
  const auto place = static_cast<std::size_t>(record - view.devices.begin());
  Groups groups = groups_of(view, place, snapshot->processes);
  Unreserved found{.early = std::vector<Unreserved::Early>{}};
  std::uint64_t ours = 0;
  for (auto& [leader, use] : groups) {
    const std::uint64_t covered = std::min(use.seen_bytes, use.reserved_bytes);
    use.seen_bytes -= covered;
    ours += covered;
  }
  // Who waits has contexts already, which will be part of what it gets.
  for (const NodeView::Reservation& reservation : view.reservations) {
    const ReservationRecord& wish = reservation.record;
    if (wish.device != place || wish.size_bytes != 0) {
      continue;
    }
    Use& use = groups[leader_of(view, wish.client)];
    if (wish.unclaimed() && use.told_bytes == 0 && use.most_of_one_bytes <= context_bytes_max) {
      found.context_bytes = std::max(found.context_bytes, use.most_of_one_bytes);
    }
    const std::uint64_t early = std::min(use.seen_bytes, wish.wanted_bytes);
    found.early->push_back({.id = wish.id, .used_bytes = early});
    use.seen_bytes -= early;
    ours += early;
  }
  found.outside_bytes = snapshot->used_bytes - std::min(snapshot->used_bytes, ours);
  node.set_unreserved(device, found);
  return true;
}

void OutsideLook::operator()() noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < look_interval) {
    return;
  }
  looked_ = now;
  try {
    look_outside(node_, device_, uuid_);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): asked again
  }
}

}  // namespace hippogriff::node
