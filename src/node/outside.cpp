// What programs that take part use is covered by what they, or their leader, have reserved, and not
// beyond that. NVML knows what a process uses. Where it does not (another pid namespace) the
// process itself says what it allocated, before it does and until its end is seen, though the
// driver may have freed it by then. What a command uses that was promised nothing yet are contexts:
// they are kept for it, and one for each that has none.
#include "node/outside.hpp"

#include "device/nvml.hpp"
#include "node/node.hpp"

#include <unistd.h>

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

// What a GPU has in use, and its processes, between two of the times at which NVML was asked: it
// tells the one after the other, and programs allocate meanwhile.
struct Snapshot {
  std::uint64_t least_used_bytes = UINT64_MAX;
  std::uint64_t most_used_bytes = 0;
  std::vector<GpuProcess> least;
  std::vector<GpuProcess> most;

  [[nodiscard]] bool at_rest() const {
    return least_used_bytes == most_used_bytes && least == most;
  }
};

std::uint64_t used_by(std::uint64_t pid, const std::vector<GpuProcess>& processes) {
  const auto process = std::ranges::find(processes, pid, &GpuProcess::pid);
  return process != processes.end() ? process->used_bytes.value_or(0) : 0;
}

void widen(Snapshot& seen, const std::vector<GpuProcess>& processes) {
  for (GpuProcess& process : seen.least) {
    if (process.used_bytes) {
      process.used_bytes = std::min(*process.used_bytes, used_by(process.pid, processes));
    }
  }
  for (const GpuProcess& process : processes) {
    const auto known = std::ranges::find(seen.most, process.pid, &GpuProcess::pid);
    if (known == seen.most.end()) {
      seen.most.push_back(process);
    } else if (known->used_bytes) {
      known->used_bytes = std::max(*known->used_bytes, process.used_bytes.value_or(0));
    }
  }
}

// In turns, because who frees and allocates again has as much before as after, so often that few
// are missed who do it all the time; and all of it again, because most programs rest.
std::optional<Snapshot> take_snapshot(const std::string& uuid) {
  constexpr int turns = 4;
  std::vector<GpuProcess> now = gpu_processes(uuid);
  for (int left = 3;; --left) {
    Snapshot seen{.least = now, .most = now};
    for (int turn = 0; turn < turns; ++turn) {
      const auto used_bytes = gpu_used_bytes(uuid);
      if (!used_bytes) {
        return std::nullopt;
      }
      seen.least_used_bytes = std::min(seen.least_used_bytes, *used_bytes);
      seen.most_used_bytes = std::max(seen.most_used_bytes, *used_bytes);
      now = gpu_processes(uuid);
      widen(seen, now);
    }
    if (left == 1 || seen.at_rest()) {
      return seen;
    }
  }
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

// Whether whoever of this pid namespace uses the GPU is on the list: if anybody is. In a container
// NVML may tell the machine's pids, and it may tell none.
bool lists_ours(const NodeView& view, const std::vector<GpuProcess>& seen) {
  return std::ranges::any_of(view.clients, [&](const NodeView::Client& client) {
    return client.pid_is_here &&
           std::ranges::find(seen, client.pid, &GpuProcess::pid) != seen.end();
  });
}

Groups groups_of(const NodeView& view, std::size_t device, const std::vector<GpuProcess>& seen) {
  Groups groups;
  const bool lists_all = lists_ours(view, seen);
  const auto own_pid = static_cast<std::uint64_t>(::getpid());
  for (const NodeView::Client& client : view.clients) {
    Use& use = groups[client.leader];
    const std::uint64_t told = device < client.used_bytes.size() ? client.used_bytes[device] : 0;
    use.told_bytes += told;
    const auto process =
        client.pid_is_here ? std::ranges::find(seen, client.pid, &GpuProcess::pid) : seen.end();
    // A server has slots of its own pid for clients whose pids it does not know.
    const bool lists_it = lists_all && client.pid_is_here && client.pid != own_pid;
    if (process == seen.end() ? !lists_it : !process->used_bytes) {
      use.seen_bytes += told;
    } else if (process != seen.end() && use.pids.insert(client.pid).second) {
      // A process may have several slots.
      use.seen_bytes += *process->used_bytes;
      use.most_of_one_bytes = std::max(use.most_of_one_bytes, *process->used_bytes);
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

// What those that take part use of what is theirs, or will be.
struct Ours {
  std::uint64_t bytes = 0;
  std::vector<Unreserved::Early> early;
  std::uint64_t context_bytes = 0;        // of who may be making its own, which comes bit by bit
  std::uint64_t whole_context_bytes = 0;  // of who waits in its first allocation
};

bool waits_in(const NodeView& view, std::uint64_t id) {
  return std::ranges::any_of(view.reservations, [id](const NodeView::Reservation& reservation) {
    return reservation.record.id == id && reservation.record.is_new();
  });
}

// `before` is the view before NVML was asked: who waited already then had made its context.
Ours ours_of(const NodeView& view,
             const NodeView& before,
             std::size_t device,
             const std::vector<GpuProcess>& seen) {
  Ours ours;
  Groups groups = groups_of(view, device, seen);
  for (auto& [leader, use] : groups) {
    const std::uint64_t covered = std::min(use.seen_bytes, use.reserved_bytes);
    use.seen_bytes -= covered;
    ours.bytes += covered;
  }
  // Who waits has contexts already, which will be part of what it gets.
  for (const NodeView::Reservation& reservation : view.reservations) {
    const ReservationRecord& wish = reservation.record;
    if (wish.device != device || wish.size_bytes != 0) {
      continue;
    }
    Use& use = groups[leader_of(view, wish.client)];
    if (wish.unclaimed() && use.told_bytes == 0 && use.most_of_one_bytes <= context_bytes_max) {
      const bool is_whole = wish.waits() && waits_in(before, wish.id);
      std::uint64_t& context = is_whole ? ours.whole_context_bytes : ours.context_bytes;
      context = std::max(context, use.most_of_one_bytes);
    }
    const std::uint64_t early = std::min(use.seen_bytes, wish.wanted_bytes);
    ours.early.push_back({.id = wish.id, .used_bytes = early});
    use.seen_bytes -= early;
    ours.bytes += early;
  }
  return ours;
}

std::uint64_t less(std::uint64_t bytes, std::uint64_t others) {
  return bytes - std::min(bytes, others);
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

// Where programs come, go or allocate meanwhile it is known between bounds: then what was known
// before stays as far as it can. More than there is would have others refused who may not wait for
// what is used outside; less would be promised twice. 0 was not known: the driver uses some itself.
bool look_outside(NodeClient& node, std::uint32_t device, const std::string& uuid) {
  const NodeView before = node.view();
  const auto seen = take_snapshot(uuid);
  if (!seen) {
    return false;
  }
  const NodeView after = node.view();
  std::uint64_t least = UINT64_MAX;
  std::uint64_t most = 0;
  std::uint64_t known_bytes = 0;
  std::uint64_t known_context_bytes = 0;
  Ours now;
  for (const NodeView* const view : {&before, &after}) {
    const auto record =
        std::ranges::find(view->devices, std::string_view(uuid), &DeviceRecord::name_view);
    const auto place = static_cast<std::size_t>(record - view->devices.begin());
    if (record != view->devices.end()) {
      known_bytes = record->outside_bytes;
      known_context_bytes = record->context_bytes;
    }
    now = ours_of(*view, before, place, seen->most);
    least = std::min(least, less(seen->least_used_bytes, now.bytes));
    const Ours least_of_ours = ours_of(*view, before, place, seen->least);
    most = std::max(most, less(seen->most_used_bytes, least_of_ours.bytes));
  }
  most = std::max(least, most);  // Who is in one list alone may have told more than NVML.
  node.set_unreserved(
      device,
      {.outside_bytes = known_bytes != 0 ? std::clamp(known_bytes, least, most) : most,
       .context_bytes = now.whole_context_bytes != 0
                            ? now.whole_context_bytes
                            : std::max(now.context_bytes, known_context_bytes),
       .early = std::move(now.early)});
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
