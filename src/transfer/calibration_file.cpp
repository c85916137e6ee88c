// The calibration file's format: JSON with a name and a version, read as untrusted input.
#include "base/error.hpp"
#include "transfer/calibration.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <string>

namespace hippogriff {
namespace {

using Json = nlohmann::json;

constexpr std::string_view format_name = "hippogriff calibration";
constexpr int format_version = 1;
constexpr std::size_t file_bytes_max = std::size_t{1} << 20;
constexpr std::size_t entries_max = 256;
constexpr std::size_t name_bytes_max = 256;
constexpr std::size_t figures_max = 64;
constexpr int nesting_max = 6;
constexpr double rate_min = 1e3;
constexpr double rate_max = 1e13;
constexpr double cost_max = 1e-3;  // CPU seconds per byte
constexpr double latency_seconds_max = 60;
constexpr double depth_max = 1024;

[[noreturn]] void refuse(const std::string& what) {
  throw_invalid("read a calibration", what);
}

struct Bounds {
  double least = 0;
  double most = 0;
};

double checked(double value, Bounds bounds, const std::string& name) {
  // Written so that NaN fails too.
  if (!(value >= bounds.least && value <= bounds.most)) {
    refuse(name + " is out of bounds");
  }
  return value;
}

const Json& member(const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) {
    refuse(std::string("\"") + name + "\" is absent");
  }
  return object.at(name);
}

double number(const Json& object, const char* name, Bounds bounds) {
  const Json& value = member(object, name);
  if (!value.is_number()) {
    refuse(std::string("\"") + name + "\" is not a number");
  }
  return checked(value.get<double>(), bounds, name);
}

bool boolean(const Json& object, const char* name) {
  const Json& value = member(object, name);
  if (!value.is_boolean()) {
    refuse(std::string("\"") + name + "\" is not true or false");
  }
  return value.get<bool>();
}

Rate parse_rate(const Json& object, const char* name) {
  const Json& rate = member(object, name);
  return {.bytes_per_second = number(rate, "bytes_per_second", {rate_min, rate_max}),
          .cpu_seconds_per_byte = number(rate, "cpu_seconds_per_byte", {0, cost_max})};
}

Json format_rate(const Rate& rate) {
  return {{"bytes_per_second", rate.bytes_per_second},
          {"cpu_seconds_per_byte", rate.cpu_seconds_per_byte}};
}

// Absent in files of before there was such a list. Names that are not known are ignored.
template <typename Names>
Figures parse_figures(const Json& object, const Names& names) {
  const auto listed = object.find("measured_figures");
  if (listed == object.end()) {
    return 0;
  }
  if (!listed->is_array() || listed->size() > figures_max) {
    refuse("\"measured_figures\" is not a list of names");
  }
  Figures figures = 0;
  for (const Json& name : *listed) {
    if (!name.is_string()) {
      refuse("\"measured_figures\" has something that is not a name");
    }
    const auto found = std::ranges::find(names, name.get_ref<const std::string&>());
    figures |= found == names.end() ? 0U : Figures{1} << std::distance(names.begin(), found);
  }
  return figures;
}

template <typename Names>
Json format_figures(Figures figures, const Names& names) {
  Json listed = Json::array();
  for (std::size_t index = 0; index < names.size(); ++index) {
    if ((figures >> index & 1U) != 0) {
      listed.push_back(names[index]);
    }
  }
  return listed;
}

LinkCalibration parse_link(const Json& json) {
  return {.to_device = parse_rate(json, "to_device"),
          .to_host = parse_rate(json, "to_host"),
          .latency_seconds = number(json, "latency_seconds", {0, latency_seconds_max}),
          .register_pages = parse_rate(json, "register_pages"),
          .register_shared_memory = parse_rate(json, "register_shared_memory"),
          .register_new_pages = parse_rate(json, "register_new_pages"),
          .measured = boolean(json, "measured"),
          .measured_figures = parse_figures(json, link_figures)};
}

Json format_entry(const LinkCalibration& link) {
  return {{"to_device", format_rate(link.to_device)},
          {"to_host", format_rate(link.to_host)},
          {"latency_seconds", link.latency_seconds},
          {"register_pages", format_rate(link.register_pages)},
          {"register_shared_memory", format_rate(link.register_shared_memory)},
          {"register_new_pages", format_rate(link.register_new_pages)},
          {"measured", link.measured},
          {"measured_figures", format_figures(link.measured_figures, link_figures)}};
}

DriveCalibration parse_drive(const Json& json) {
  const double depth = number(json, "depth", {1, depth_max});
  if (depth != std::floor(depth)) {
    refuse("\"depth\" is not a whole number");
  }
  return {.direct_read = parse_rate(json, "direct_read"),
          .direct_write = parse_rate(json, "direct_write"),
          .latency_seconds = number(json, "latency_seconds", {0, latency_seconds_max}),
          .depth = static_cast<std::uint32_t>(depth),
          .measured = boolean(json, "measured"),
          .measured_figures = parse_figures(json, drive_figures)};
}

Json format_entry(const DriveCalibration& drive) {
  return {{"direct_read", format_rate(drive.direct_read)},
          {"direct_write", format_rate(drive.direct_write)},
          {"latency_seconds", drive.latency_seconds},
          {"depth", drive.depth},
          {"measured", drive.measured},
          {"measured_figures", format_figures(drive.measured_figures, drive_figures)}};
}

HostCalibration parse_host(const Json& json) {
  constexpr Bounds rates{rate_min, rate_max};
  return {.cached_read_per_channel = parse_rate(json, "cached_read_per_channel"),
          .cached_read_max = number(json, "cached_read_max", rates),
          .cached_write_per_channel = parse_rate(json, "cached_write_per_channel"),
          .cached_write_max = number(json, "cached_write_max", rates)};
}

Json format_host(const CalibrationFile& calibration) {
  const HostCalibration& host = calibration.host;
  return {{"cached_read_per_channel", format_rate(host.cached_read_per_channel)},
          {"cached_read_max", host.cached_read_max},
          {"cached_write_per_channel", format_rate(host.cached_write_per_channel)},
          {"cached_write_max", host.cached_write_max},
          {"measured", calibration.host_measured},
          {"measured_figures", format_figures(calibration.host_measured_figures, host_figures)}};
}

template <typename Entry>
std::map<std::string, Entry> parse_entries(const Json& json, Entry (*parse)(const Json&)) {
  if (!json.is_object() || json.size() > entries_max) {
    refuse("there are too many entries, or no list of them");
  }
  std::map<std::string, Entry> entries;
  for (const auto& item : json.items()) {
    if (item.key().size() > name_bytes_max) {
      refuse("a name is too long");
    }
    entries.emplace(item.key(), parse(item.value()));
  }
  return entries;
}

template <typename Entry>
Json format_entries(const std::map<std::string, Entry>& entries) {
  Json json = Json::object();
  for (const auto& [name, entry] : entries) {
    json[name] = format_entry(entry);
  }
  return json;
}

CalibrationFile parse_whole(const Json& json) {
  if (member(json, "format") != format_name || member(json, "version") != format_version) {
    refuse("it is of another format or version");
  }
  const Json& host = member(json, "host");
  return {.links = parse_entries(member(json, "links"), parse_link),
          .drives = parse_entries(member(json, "drives"), parse_drive),
          .host = parse_host(host),
          .host_measured = boolean(host, "measured"),
          .host_measured_figures = parse_figures(host, host_figures)};
}

}  // namespace

CalibrationFile parse_calibration(std::string_view json) {
  if (json.size() > file_bytes_max) {
    refuse("it is larger than 1 MiB");
  }
  const auto stop_deep_nesting = [](int depth, Json::parse_event_t, const Json&) {
    if (depth > nesting_max) {
      refuse("it is nested too deeply");
    }
    return true;
  };
  try {
    return parse_whole(Json::parse(json, stop_deep_nesting));
  } catch (const Json::exception& error) {
    refuse(error.what());
  }
}

std::string format_calibration(const CalibrationFile& calibration) {
  const Json json = {{"format", format_name},
                     {"version", format_version},
                     {"host", format_host(calibration)},
                     {"links", format_entries(calibration.links)},
                     {"drives", format_entries(calibration.drives)}};
  try {
    std::string text = json.dump(2) + "\n";
    parse_calibration(text);
    return text;
  } catch (const Json::exception& error) {
    refuse(error.what());  // a name that is not UTF-8
  }
}

}  // namespace hippogriff
