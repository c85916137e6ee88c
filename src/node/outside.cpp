// What programs that take part use is covered by what they, or their leader, have reserved, and not
// beyond that. NVML knows what a process uses, and where it does not (another pid namespace) the
// process itself says what it allocated.
#include "node/outside.hpp"

#include "device/nvml.hpp"
#include "node/node.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace hippogriff::node {

namespace {

// What a leader and those who follow it use of a device.
struct Use {
  std::uint64_t told_bytes = 0;
  std::uint64_t seen_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  std::set<std::uint64_t> pids;
};

// Who is first of those that wait and hold nothing; null when nobody does.
const ReservationRecord* next_newcomer(const NodeView& view, std::size_t device) {
  const bool by_priority =
      view.policy == Policy::priority_fifo || view.policy == Policy::priority_mmu;
  const auto rank = [&](const ReservationRecord& record) {
    return std::pair(by_priority ? -std::int64_t{record.priority} : 0, record.ticket);
  };
  const ReservationRecord* next = nullptr;
  for (const NodeView::Reservation& reservation : view.reservations) {
    const ReservationRecord& record = reservation.record;
    if (record.device == device && record.waits() && !record.grows() &&
        (next == nullptr || rank(record) < rank(*next))) {
      next = &record;
    }
  }
  return next;
}

}  // namespace

void look_outside(NodeClient& node, std::uint32_t device, const std::string& uuid) {
  const auto facts = find_gpu(uuid);
  if (!facts) {
    return;
  }
  const NodeView view = node.view();
  const auto record =
      std::ranges::find(view.devices, std::string_view(uuid), &DeviceRecord::name_view);
  const auto place = static_cast<std::size_t>(record - view.devices.begin());
  const std::vector<GpuProcess> processes = gpu_processes(uuid);
  std::map<std::uint32_t, Use> groups;  // by leader
  for (const NodeView::Client& client : view.clients) {
    Use& use = groups[client.leader];
    use.told_bytes += place < client.used_bytes.size() ? client.used_bytes[place] : 0;
    const auto seen = std::ranges::find(processes, client.pid, &GpuProcess::pid);
    // A process may have several slots.
    if (seen != processes.end() && use.pids.insert(client.pid).second) {
      use.seen_bytes += seen->used_bytes;
    }
  }
  for (const NodeView::Reservation& reservation : view.reservations) {
    if (reservation.record.device == place) {
      groups[reservation.record.client].reserved_bytes += reservation.record.size_bytes;
    }
  }
  // One that waits for its first use has contexts already, which will be part of what it gets. Of
  // those further back they take memory that is promised to nobody.
  if (const ReservationRecord* next = next_newcomer(view, place)) {
    groups[next->client].reserved_bytes += next->wanted_bytes;
  }
  std::uint64_t ours = 0;
  for (const auto& [leader, use] : groups) {
    ours += std::min(std::max(use.told_bytes, use.seen_bytes), use.reserved_bytes);
  }
  node.set_outside(device, facts->used_bytes - std::min(facts->used_bytes, ours));
}

}  // namespace hippogriff::node
