// The node's view, NVML's facts and the devices of this machine in one object.
#include "transfer/node_report.hpp"

#include "device/nvml.hpp"
#include "transfer/route.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

namespace hippogriff {

namespace {

using Json = nlohmann::ordered_json;
using node::Policy;

constexpr std::array<std::pair<Policy, std::string_view>, node::policy_count> policy_names = {{
    {Policy::fifo, "fifo"},
    {Policy::mmu, "mmu"},
    {Policy::priority_fifo, "priority-fifo"},
    {Policy::priority_mmu, "priority-mmu"},
    {Policy::aging_mmu, "aging-mmu"},
}};

std::map<std::string, GpuFacts> gpus_by_uuid() {
  std::map<std::string, GpuFacts> gpus;
  for (GpuFacts& facts : list_gpus()) {
    std::string uuid = facts.uuid;
    gpus.emplace(std::move(uuid), std::move(facts));
  }
  return gpus;
}

Json gpus_json(const std::map<std::string, GpuFacts>& gpus) {
  Json list = Json::array();
  for (const auto& [uuid, facts] : gpus) {
    Json json = {{"index", facts.index},
                 {"uuid", uuid},
                 {"model", facts.model},
                 {"memory_bytes", facts.memory_bytes},
                 {"used_bytes", facts.used_bytes}};
    if (facts.utilization_pct) {
      json["utilization_pct"] = *facts.utilization_pct;
    }
    list.push_back(std::move(json));
  }
  return list;
}

std::uint64_t sum_of(const node::NodeView& view,
                     std::size_t device,
                     std::uint64_t node::ReservationRecord::* size_bytes) {
  std::uint64_t sum = 0;
  for (const auto& reservation : view.reservations) {
    sum += reservation.record.device == device ? reservation.record.*size_bytes : 0;
  }
  return sum;
}

Json device_json(const node::NodeView& view,
                 std::size_t index,
                 const std::map<std::string, GpuFacts>& gpus) {
  const node::DeviceRecord& record = view.devices[index];
  const std::uint64_t promised = sum_of(view, index, &node::ReservationRecord::size_bytes);
  // Contexts of those who wait are promised to nobody, as what is used outside.
  const std::uint64_t outside =
      record.outside_bytes + sum_of(view, index, &node::ReservationRecord::kept_bytes);
  const std::uint64_t taken = std::min(record.capacity_bytes, promised + outside);
  std::uint64_t told_bytes = 0;
  for (const auto& client : view.clients) {
    told_bytes += index < client.used_bytes.size() ? client.used_bytes[index] : 0;
  }
  Json json = {{"uuid", record.name_view()},
               {"memory_bytes", record.capacity_bytes},
               {"promised_bytes", promised},
               {"outside_bytes", outside},
               {"free_bytes", record.capacity_bytes - taken},
               {"used_bytes", told_bytes}};
  if (const auto gpu = gpus.find(std::string(record.name_view())); gpu != gpus.end()) {
    json["index"] = gpu->second.index;
    json["model"] = gpu->second.model;
    json["used_bytes"] = gpu->second.used_bytes;
    if (gpu->second.utilization_pct) {
      json["utilization_pct"] = *gpu->second.utilization_pct;
    }
  }
  return json;
}

Json reservation_json(const node::NodeView& view, const node::NodeView::Reservation& reservation) {
  const node::ReservationRecord& record = reservation.record;
  Json json = {{"id", record.id},
               {"device", view.devices[record.device].name_view()},
               {"pid", reservation.pid},
               {"client", record.client},
               {"size_bytes", record.size_bytes},
               {"kept_bytes", record.kept_bytes},
               {"priority", record.priority},
               {"waits", record.waits()},
               {"deferred", record.deferred != 0}};
  if (record.deferred != 0) {
    json["wanted_bytes"] = record.wanted_bytes;
  }
  if (record.waits()) {
    const auto since = static_cast<std::uint64_t>(std::max<std::int64_t>(record.since_ns, 0));
    json["wanted_bytes"] = record.wanted_bytes;
    json["waited_seconds"] = static_cast<double>(view.now_ns - std::min(view.now_ns, since)) / 1e9;
    json["overtaken"] = record.overtaken;
  }
  return json;
}

Json client_json(const node::NodeView& view, const node::NodeView::Client& client) {
  Json used = Json::object();
  for (std::size_t index = 0; index < client.used_bytes.size(); ++index) {
    if (client.used_bytes[index] != 0) {
      used[std::string(view.devices[index].name_view())] = client.used_bytes[index];
    }
  }
  return {{"client", client.client},
          {"leader", client.leader},
          {"pid", client.pid},
          {"used_bytes", used},
          {"unshown_transfers", client.unshown_transfers},
          {"unshown_arrays", client.unshown_arrays}};
}

// UUIDs by what stands for them on boards.
std::map<std::uint64_t, std::string> uuids_by_key(const node::NodeView& view,
                                                  const std::map<std::string, GpuFacts>& gpus) {
  std::map<std::uint64_t, std::string> uuids{{node::device_key("host"), "host"}};
  for (const node::DeviceRecord& device : view.devices) {
    uuids.emplace(node::device_key(device.name_view()), device.name_view());
  }
  for (const auto& [uuid, facts] : gpus) {
    uuids.emplace(node::device_key(uuid), uuid);
  }
  return uuids;
}

std::string uuid_of(std::uint64_t key, const std::map<std::uint64_t, std::string>& uuids) {
  const auto at = uuids.find(key);
  return at != uuids.end() ? at->second : "";
}

Json transfer_json(const node::NodeView& view,
                   const node::SeenTransfer& seen,
                   const std::map<std::uint64_t, std::string>& uuids) {
  constexpr std::array phases = {"moving", "parking", "waiting"};
  const node::ShownTransfer& shown = seen.shown;
  const auto started = static_cast<std::uint64_t>(std::max<std::int64_t>(shown.started_ns, 0));
  const double seconds = static_cast<double>(view.now_ns - std::min(view.now_ns, started)) / 1e9;
  const bool known = shown.route < HIPPOGRIFF_ROUTE_COUNT;
  return {
      {"pid", seen.pid},
      {"client", seen.client},
      {"device", uuid_of(shown.device, uuids)},
      {"drive", shown.drive},
      {"direction", shown.sends ? "send" : "recv"},
      {"route", known ? route_name(static_cast<Route>(shown.route)) : "unknown"},
      {"phase", phases.at(static_cast<std::size_t>(shown.phase))},
      {"wants_memory", shown.wants_memory},
      {"channels", shown.channels},
      {"drive_requests", shown.drive_requests},
      {"bytes_total", shown.bytes_total},
      {"bytes_done", shown.bytes_done},
      {"seconds", seconds},
      {"gb_per_second", seconds > 0 ? static_cast<double>(shown.bytes_done) / seconds / 1e9 : 0.0}};
}

// `seconds` is the time in which the counts came about.
Json array_json(const node::SeenArray& seen, const std::map<std::uint64_t, std::string>& uuids) {
  const node::ShownArray& shown = seen.shown;
  const node::ArrayCounts& counts = seen.counts;
  const std::uint64_t not_hits = counts.misses + counts.overwritten;
  const std::uint64_t hits = counts.accesses - std::min(counts.accesses, not_hits);
  return {{"pid", seen.pid},
          {"client", seen.client},
          {"record", seen.record},
          {"device", uuid_of(shown.device, uuids)},
          {"drive", shown.drive},
          {"size_bytes", shown.size_bytes},
          {"cache_bytes", shown.cache_bytes},
          {"line_bytes", shown.line_bytes},
          {"opened_ns", seen.opened_ns},
          {"seconds", static_cast<double>(seen.counted_ns - seen.opened_ns) / 1e9},
          {"accesses", counts.accesses},
          {"hits", counts.counts_accesses ? hits : 0},
          {"hits_counted", counts.counts_accesses},
          {"misses", counts.misses},
          {"overwritten", counts.overwritten},
          {"written_back", counts.written_back},
          {"read_bytes", counts.read_bytes},
          {"written_bytes", counts.written_bytes},
          {"in_flight", counts.in_flight},
          {"drive_limit", counts.drive_limit}};
}

}  // namespace

std::string_view policy_name(Policy policy) noexcept {
  const auto* const at =
      std::ranges::find(policy_names, policy, &std::pair<Policy, std::string_view>::first);
  return at != policy_names.end() ? at->second : "unknown";
}

std::optional<Policy> parse_policy(std::string_view name) noexcept {
  const auto* const at =
      std::ranges::find(policy_names, name, &std::pair<Policy, std::string_view>::second);
  return at != policy_names.end() ? std::optional(at->first) : std::nullopt;
}

std::string node_json(NodeShare& share) {
  const auto gpus = gpus_by_uuid();
  for (const auto& [uuid, facts] : gpus) {
    share.account(
        {.name = uuid, .uuid = uuid, .model = facts.model, .memory_bytes = facts.memory_bytes});
  }
  share.look_outside(std::chrono::milliseconds(0));
  const node::NodeView view = share.node().view();
  Json devices = Json::array();
  for (std::size_t index = 0; index < view.devices.size(); ++index) {
    devices.push_back(device_json(view, index, gpus));
  }
  Json reservations = Json::array();
  for (const auto& reservation : view.reservations) {
    reservations.push_back(reservation_json(view, reservation));
  }
  Json clients = Json::array();
  for (const auto& client : view.clients) {
    clients.push_back(client_json(view, client));
  }
  Json transfers = Json::array();
  const auto uuids = uuids_by_key(view, gpus);
  for (const node::SeenTransfer& seen : view.transfers) {
    transfers.push_back(transfer_json(view, seen, uuids));
  }
  Json arrays = Json::array();
  for (const node::SeenArray& seen : view.arrays) {
    arrays.push_back(array_json(seen, uuids));
  }
  const Json json = {{"node", share.address()},
                     {"policy", policy_name(view.policy)},
                     {"overtakes_max", view.bound.grants_max},
                     {"overtake_seconds_max", static_cast<double>(view.bound.wait_ns_max) / 1e9},
                     {"nvml", nvml_obstacle().empty() ? Json(true) : Json(nvml_obstacle())},
                     {"host_memory_bytes", host_memory_limit_bytes()},
                     {"gpus", gpus_json(gpus)},
                     {"devices", devices},
                     {"reservations", reservations},
                     {"clients", clients},
                     {"transfers", transfers},
                     {"arrays", arrays}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hippogriff
