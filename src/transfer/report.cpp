// JSON by nlohmann's library; field names carry their units.
#include "transfer/report.hpp"

#include "device/cuda_device.hpp"
#include "device/nvml.hpp"
#include "storage/drives.hpp"
#include "transfer/cufile.hpp"
#include "transfer/outlook.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

namespace hippogriff {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array lanes = {
    Lane::direct, Lane::mapped, Lane::buffered, Lane::direct_io, Lane::parked};

const char* direction_name(Direction direction) {
  return direction == Direction::send ? "send" : "recv";
}

// Paths are bytes; JSON is UTF-8: what is not is replaced.
std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Json plan_json(const Plan& plan) {
  return {{"direct_channels", plan.direct_channels},
          {"mapped_channels", plan.mapped_channels},
          {"buffered_channels", plan.buffered_channels},
          {"direct_io_depth", plan.direct_io_depth},
          {"park", plan.park}};
}

struct OutlookWish {
  std::string drive;
  Route forced = Route::automatic;
};

Json prediction_json(const RoutePrediction& prediction) {
  Json json = {{"route", route_name(prediction.route)}, {"possible", prediction.possible}};
  if (prediction.possible) {
    json["seconds"] = prediction.seconds;
    json["cpu_seconds"] = prediction.cpu_seconds;
    json["plan"] = plan_json(prediction.plan);
  } else {
    json["why_not"] = prediction.why_not;
  }
  return json;
}

Json others_json(const TransferLoad& load) {
  return {{"drive",
           {{"processes", load.others_on_drive.processes},
            {"bytes_per_second", load.others_on_drive.bytes_per_second},
            {"requests", load.others_on_drive.requests}}},
          {"link",
           {{"processes", load.others_on_link.processes},
            {"bytes_per_second", load.others_on_link.bytes_per_second}}},
          {"want_memory", load.others_want_memory}};
}

// With what would have been chosen without them.
Json explained_others(Runtime& runtime,
                      const DeviceState& state,
                      const Runtime::Outlook& seen,
                      const OutlookWish& wish) {
  const TransferLoad& load = seen.decision.load;
  Json json = others_json(load);
  if (!any_others(load)) {
    return json;
  }
  const Calibration calibration =
      runtime.calibration().get(link_key(state.device->info()), wish.drive);
  const RoutingDecision alone =
      choose_route(seen.facts, without_others(load), calibration, wish.forced);
  json["without_them"] = prediction_json(alone.choice());
  return json;
}

Json rate_json(const Rate& rate) {
  return {{"bytes_per_second", rate.bytes_per_second},
          {"cpu_seconds_per_byte", rate.cpu_seconds_per_byte}};
}

// What is known of a device's memory, and what only a context on it would tell.
struct KnownMemory {
  DeviceMemory amount;
  std::string why_free_unknown;  // "" when it is known
};

KnownMemory memory_of(const Runtime::KnownDevice& device) {
  if (device.state != nullptr) {
    Device& open = *device.state->device;
    const DeviceScope scope(open);
    return {open.memory(), {}};
  }
  const std::uint64_t total = device.info.memory_bytes;
  if (const auto gpu = find_gpu(device.info.uuid)) {
    const std::uint64_t free = gpu->memory_bytes - std::min(gpu->memory_bytes, gpu->used_bytes);
    return {{std::min(free, total), total}, {}};
  }
  const std::string obstacle = nvml_obstacle();
  return {{0, total}, obstacle.empty() ? "NVML does not know this device" : obstacle};
}

Json what_needs_a_context(const Runtime::KnownDevice& device, const KnownMemory& memory) {
  Json unknown = Json::array();
  if (device.state == nullptr) {
    unknown.push_back("whether it starts and pins memory, which its first transfer shows");
  }
  if (!memory.why_free_unknown.empty()) {
    unknown.push_back("how much memory is free: " + memory.why_free_unknown);
  }
  return unknown;
}

Json device_json(const Runtime::KnownDevice& device, Runtime& runtime, const std::string& drive) {
  const DeviceInfo& info = device.info;
  const KnownMemory memory = memory_of(device);
  const bool free_known = memory.why_free_unknown.empty();
  return {{"name", info.name},
          {"open", device.state != nullptr},
          {"model", info.model},
          {"uuid", info.uuid},
          {"numa_node", info.numa_node},
          {"memory_total_bytes", memory.amount.total_bytes},
          {"memory_free_bytes", free_known ? Json(memory.amount.free_bytes) : Json(nullptr)},
          {"needs_context", what_needs_a_context(device, memory)},
          {"host_addressable", info.can.host_addressable},
          {"registers_read_only", info.can.registers_read_only},
          {"registers_read_write", info.can.registers_read_write},
          {"calibrated", runtime.calibration().measured(link_key(info), drive)}};
}

Json drive_json(const DriveFacts& drive) {
  Json json = {{"name", drive.name},
               {"model", drive.model},
               {"size_bytes", drive.size_bytes},
               {"scheduler", drive.scheduler},
               {"numa_node", drive.numa_node}};
  if (drive.rotational) {
    json["rotational"] = *drive.rotational;
  }
  return json;
}

Json ability(const std::string& why_not) {
  Json json = {{"possible", why_not.empty()}};
  if (!why_not.empty()) {
    json["why_not"] = why_not;
  }
  return json;
}

// What each route can do between this device and files of this place, as far as the place tells:
// single files may say no to O_DIRECT.
Json route_abilities(const DeviceCapabilities& can, const PathFacts& place) {
  const bool in_memory = place.filesystem == "tmpfs" || place.filesystem == "ramfs";
  const std::string direct =
      can.host_addressable || gds_presence().real ? "" : gds_presence().why_not;
  const std::string mapped_send =
      can.registers_read_only ? "" : "the device cannot register read-only pages of a file";
  std::string mapped_recv = in_memory ? "" : "only files in memory (tmpfs) are mapped for writing";
  if (in_memory && !can.registers_read_write) {
    mapped_recv = "the device cannot register pages for writing";
  }
  return {{{"route", "direct"}, {"send", ability(direct)}, {"recv", ability(direct)}},
          {{"route", "mapped"}, {"send", ability(mapped_send)}, {"recv", ability(mapped_recv)}},
          {{"route", "pipelined"}, {"send", ability("")}, {"recv", ability("")}},
          {{"route", "parked"}, {"send", ability("")}, {"recv", ability("")}}};
}

Json path_json(const PathFacts& facts) {
  Json json = {{"path", facts.path},
               {"mount_point", facts.mount_point},
               {"filesystem", facts.filesystem},
               {"source", facts.source},
               {"size_bytes", facts.size_bytes},
               {"free_bytes", facts.free_bytes}};
  json["drive"] = facts.drive ? drive_json(*facts.drive) : Json(nullptr);
  return json;
}

// In the order of the ABI; nothing of routes that carried none.
using RouteBytes = std::array<std::optional<std::uint64_t>, HIPPOGRIFF_ROUTE_COUNT>;

RouteBytes bytes_by_route(const Transfer& transfer) {
  RouteBytes carried;
  for (const Lane lane : lanes) {
    const LaneTally tally = transfer.tally(lane);
    if (tally.bytes > 0) {
      auto& bytes = carried[static_cast<std::size_t>(route_of(lane))];
      bytes = bytes.value_or(0) + tally.moved_bytes;
    }
  }
  return carried;
}

Json bytes_by_route_json(const Transfer& transfer) {
  const RouteBytes carried = bytes_by_route(transfer);
  Json json = Json::object();
  for (std::size_t route = 1; route < carried.size(); ++route) {
    if (carried[route]) {
      json[std::string(route_name(static_cast<Route>(route)))] = *carried[route];
    }
  }
  return json;
}

}  // namespace

std::string route_taken(const Transfer& transfer) {
  const RouteBytes carried = bytes_by_route(transfer);
  std::string name;
  for (std::size_t route = 1; route < carried.size(); ++route) {
    if (carried[route]) {
      name += (name.empty() ? "" : "+") + std::string(route_name(static_cast<Route>(route)));
    }
  }
  return name.empty() ? std::string(route_name(transfer.decision().chosen)) : name;
}

std::string report_json(const Transfer& transfer) {
  const hippogriff_progress progress = transfer.progress();
  const TransferRequest& request = transfer.request();
  const std::uint64_t cold = transfer.cold_bytes();
  Json json = {
      {"direction", direction_name(request.direction)},
      {"file", transfer.path()},
      {"offset", request.extent.offset},
      {"bytes", progress.bytes_total},
      {"bytes_done", progress.bytes_done},
      {"device", request.device->info().name},
      {"status", status_name(transfer.status())},
      {"route", route_taken(transfer)},
      {"bytes_by_route", bytes_by_route_json(transfer)},
      {"seconds", progress.seconds},
      {"gigabytes_per_second",
       progress.seconds > 0 ? static_cast<double>(progress.bytes_done) / progress.seconds / 1e9
                            : 0.0},
      {"predicted_seconds", transfer.decision().choice().seconds},
      {"predicted_cpu_seconds", transfer.decision().choice().cpu_seconds},
      {"plan", plan_json(transfer.decision().choice().plan)},
      {"other_processes", others_json(transfer.decision().load)}};
  if (request.direction == Direction::send) {
    json["bytes_from_page_cache"] = progress.bytes_done >= cold ? progress.bytes_done - cold : 0;
    json["bytes_from_disk"] = cold;
  }
  double cpu_seconds = 0;
  Json carried = Json::object();
  for (const Lane lane : lanes) {
    const LaneTally tally = transfer.tally(lane);
    cpu_seconds += tally.cpu_seconds;
    if (tally.bytes > 0) {
      carried[std::string(lane_name(lane))] = {
          {"bytes", tally.bytes},
          {"seconds", seconds_between(tally.first, tally.last)},
          {"cpu_seconds", tally.cpu_seconds},
          {"tasks", tally.channels}};
    }
  }
  json["cpu_seconds"] = cpu_seconds;
  json["host_memory_bytes"] = transfer.host_memory.most_bytes();
  if (transfer.host_memory.bounded()) {
    json["host_memory_budget_bytes"] = request.host_memory_bytes;
  }
  json["lanes"] = carried;
  return dumped(json);
}

std::string stats_json(Runtime& runtime) {
  const RuntimeStats stats = runtime.stats();
  Json json = {{"transfers_finished", stats.finished},
               {"transfers_failed", stats.failed},
               {"transfers_cancelled", stats.cancelled}};
  const auto route_stats = [](const RouteStats& route) -> Json {
    return {{"transfers", route.transfers}, {"bytes", route.bytes}, {"seconds", route.seconds}};
  };
  for (const Direction direction : {Direction::send, Direction::recv}) {
    const auto index = static_cast<std::size_t>(direction);
    Json& by_lane = json["by_lane"][direction_name(direction)];
    for (const Lane lane : lanes) {
      by_lane[std::string(lane_name(lane))] =
          route_stats(stats.lanes[index][static_cast<std::size_t>(lane)]);
    }
    by_lane["small"] = route_stats(stats.small[index]);
  }
  json["devices"] = Json::array();
  for (DeviceState* state : runtime.opened_devices()) {
    const DeviceScope scope(*state->device);
    const DeviceMemory memory = state->device->memory();
    json["devices"].push_back(
        {{"name", state->device->info().name},
         {"uuid", state->device->info().uuid},
         {"pinned_bytes", state->engine->pinned_bytes() + state->small.pinned_bytes()},
         {"parked_bytes", state->engine->parked_bytes()},
         {"parking_budget_bytes", state->engine->parking_budget_bytes()},
         {"allocated_bytes", state->allocated_bytes()},
         {"memory_free_bytes", memory.free_bytes},
         {"memory_total_bytes", memory.total_bytes},
         {"busy_channels", state->engine->busy_channels()}});
  }
  return dumped(json);
}

std::string info_json(Runtime& runtime, const std::string& path) {
  const PathFacts place = path_facts(path);
  const std::string drive = place.drive ? place.drive->name : place.filesystem;
  const CudaPresence& cuda = cuda_presence();
  const GdsPresence& gds = gds_presence();
  Json json = {{"version", hippogriff_version()},
               {"path", path_json(place)},
               {"io_queue", runtime.storage().queue_kind()},
               {"io_registered_buffers", ability(runtime.storage().why_no_registered_buffers())},
               {"cores", usable_cores()},
               {"calibration_file", runtime.calibration().file().string()},
               {"cuda",
                {{"device_count", cuda.device_count},
                 {"driver_version", cuda.driver_version},
                 {"why_not", cuda.why_not}}},
               {"gpudirect_storage", {{"real", gds.real}, {"why_not", gds.why_not}}}};
  json["notices"] = runtime.notices();
  json["devices"] = Json::array();
  for (const Runtime::KnownDevice& known : runtime.known_devices()) {
    Json device = device_json(known, runtime, drive);
    device["routes"] = route_abilities(known.info.can, place);
    const Calibration calibration = runtime.calibration().get(link_key(known.info), drive);
    device["link"] = {{"to_device", rate_json(calibration.link.to_device)},
                      {"to_host", rate_json(calibration.link.to_host)}};
    json["devices"].push_back(std::move(device));
  }
  const Calibration calibration = runtime.calibration().get("", drive);
  json["drive"] = {{"name", drive},
                   {"direct_read", rate_json(calibration.drive.direct_read)},
                   {"direct_write", rate_json(calibration.drive.direct_write)},
                   {"depth", calibration.drive.depth}};
  return dumped(json);
}

std::string explain_json(Runtime& runtime, const Submission& submission) {
  const auto file = runtime.storage().open(submission.path, FileAccess::read);
  DeviceState& state = runtime.device(submission.device);
  const std::uint64_t size = file->identity().size;
  const bool sends = submission.direction == Direction::send;
  if (submission.offset > size && (sends || submission.size == 0)) {
    throw_invalid("explain",
                  submission.path,
                  "the offset lies past the end of the file (" + std::to_string(size) + " bytes)" +
                      (sends ? "" : ": say how much is to be written there"));
  }
  const std::uint64_t rest = size - std::min(size, submission.offset);
  if (sends && submission.size > rest) {
    throw_invalid("explain",
                  submission.path,
                  "asked for " + std::to_string(submission.size) +
                      " bytes, but the file has only " + std::to_string(rest) +
                      " from the offset on");
  }
  const Range extent{submission.offset, submission.size == 0 ? rest : submission.size};
  const DeviceScope scope(*state.device);
  const auto seen = runtime.outlook(state,
                                    *file,
                                    {.extent = extent,
                                     .direction = submission.direction,
                                     .forced = submission.route,
                                     .device_ready = true});
  Json json = {
      {"file", file->facts().path},
      {"filesystem", file->facts().filesystem},
      {"drive", file->facts().drive},
      {"direct_io", file->facts().direct},
      {"why_not_direct_io", file->facts().why_not_direct},
      {"direction", direction_name(submission.direction)},
      {"offset", extent.offset},
      {"bytes", extent.size},
      {"device", state.device->info().name},
      {"cached_fraction", seen.facts.cached_fraction},
      {"calibrated",
       runtime.calibration().measured(link_key(state.device->info()), drive_key(file->facts()))},
      {"chosen", route_name(seen.decision.chosen)},
      {"other_processes",
       explained_others(runtime, state, seen, {drive_key(file->facts()), submission.route})}};
  json["routes"] = Json::array();
  for (const RoutePrediction& prediction : seen.decision.predictions) {
    json["routes"].push_back(prediction_json(prediction));
  }
  return dumped(json);
}

}  // namespace hippogriff
