// Measures hippogriff beside the machine's limits and hand-written loops, in one run on one
// machine. bench/README.md says what is measured and how the results are written.
#include "transfer/contender.hpp"
#include "transfer/latency.hpp"
#include "transfer/machine.hpp"
#include "transfer/results.hpp"
#include "transfer/schedule.hpp"

#include <hippogriff/hippogriff.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using bench::mebibyte;

constexpr const char* usage =
    "usage: transfer_bench [options]\n"
    "  --dirs A,B            directories for the files (default: .,/dev/shm)\n"
    "  --sizes 4KiB,1GiB     sizes (default: 4KiB,64KiB,1MiB,16MiB,256MiB,1GiB,4GiB,8GiB)\n"
    "  --directions send,recv\n"
    "  --states cached,cold,half_cached,striped,empty_file\n"
    "  --contenders A,B      only these, by the names in the results (default: all)\n"
    "  --device cuda:0|host  (default: the first GPU, else host)\n"
    "  --rounds N            repetitions of cheap cases (default 5)\n"
    "  --budget-seconds S    drop repetitions beyond this time (default 540)\n"
    "  --quick               sizes up to 256 MiB, no sweeps, 3 rounds\n"
    "  --calibrate           measure the machine for the router first, as a user would\n"
    "  --no-latency          leave out the small operations\n"
    "  --latency-only        nothing but the small operations\n"
    "  --json FILE           write the results there\n"
    "  --commit ID           recorded with the results\n"
    "  --keep-files          leave the files for the next run\n";

struct Options {
  std::vector<std::string> directories = {".", "/dev/shm"};
  std::vector<std::uint64_t> sizes = {4096,
                                      65536,
                                      mebibyte,
                                      16 * mebibyte,
                                      256 * mebibyte,
                                      1024 * mebibyte,
                                      4096 * mebibyte,
                                      8192 * mebibyte};
  std::vector<std::string> directions = {"send", "recv"};
  std::vector<std::string> states = {"cached", "half_cached", "striped", "cold", "empty_file"};
  std::vector<std::string> contenders;  // empty: all
  std::string device;
  std::string json;
  std::string commit = "unknown";
  unsigned rounds = 5;
  double budget_seconds = 540;
  bool quick = false;
  bool calibrate = false;
  bool latency = true;
  bool latency_only = false;
  bool keep_files = false;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= list.size();) {
    const std::size_t end = std::min(list.find(',', start), list.size());
    if (end > start) {
      parts.push_back(list.substr(start, end - start));
    }
    start = end + 1;
  }
  return parts;
}

std::uint64_t parse_number(std::string_view text, std::string_view& rest) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number == 0) {
    throw std::invalid_argument("not a number: " + std::string(text));
  }
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::uint64_t parse_count(const std::string& text) {
  std::string_view rest;
  const std::uint64_t number = parse_number(text, rest);
  if (!rest.empty()) {
    throw std::invalid_argument("not a number: " + text);
  }
  return number;
}

std::uint64_t parse_index(const std::string& text) {
  std::uint64_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size() || index > 1000) {
    throw std::invalid_argument("not the number of a device: " + text);
  }
  return index;
}

std::uint64_t parse_size(const std::string& text) {
  std::string_view unit;
  const std::uint64_t number = parse_number(text, unit);
  const unsigned shift = unit == "KiB" ? 10 : unit == "MiB" ? 20 : unit == "GiB" ? 30 : 0;
  if ((shift == 0 && !unit.empty()) || number > (UINT64_MAX >> (shift + 1)) ||
      (number << shift) % 4096 != 0) {
    throw std::invalid_argument("not a size in KiB, MiB or GiB, a multiple of 4 KiB: " + text);
  }
  return number << shift;
}

// One flag with its value; false when it is none of ours.
bool take_value(Options& options, const std::string& flag, const std::string& value) {
  if (flag == "--dirs") {
    options.directories = split(value);
  } else if (flag == "--sizes") {
    options.sizes.clear();
    for (const std::string& size : split(value)) {
      options.sizes.push_back(parse_size(size));
    }
    std::sort(options.sizes.begin(), options.sizes.end());
  } else if (flag == "--directions") {
    options.directions = split(value);
  } else if (flag == "--states") {
    options.states = split(value);
  } else if (flag == "--contenders") {
    options.contenders = split(value);
  } else if (flag == "--device") {
    options.device = value;
  } else if (flag == "--rounds") {
    options.rounds = static_cast<unsigned>(parse_count(value));
  } else if (flag == "--budget-seconds") {
    options.budget_seconds = static_cast<double>(parse_count(value));
  } else if (flag == "--json") {
    options.json = value;
  } else if (flag == "--commit") {
    options.commit = value;
  } else {
    return false;
  }
  return true;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick") {
      options.quick = true;
      options.rounds = 3;
      std::erase_if(options.sizes, [](std::uint64_t size) { return size > 256 * mebibyte; });
    } else if (flag == "--calibrate") {
      options.calibrate = true;
    } else if (flag == "--no-latency") {
      options.latency = false;
    } else if (flag == "--latency-only") {
      options.latency_only = true;
    } else if (flag == "--keep-files") {
      options.keep_files = true;
    } else if (i + 1 < argc && take_value(options, flag, argv[i + 1])) {
      ++i;
    } else {
      throw std::invalid_argument("unknown option, or one without its value: " + flag + "\n" +
                                  usage);
    }
  }
  if (options.sizes.empty() || options.directories.empty()) {
    throw std::invalid_argument("at least one size and one directory");
  }
  return options;
}

template <class Choice>
std::vector<Choice> choose(const std::vector<std::string>& names,
                           std::vector<Choice> all,
                           std::string_view (*name_of)(Choice)) {
  std::vector<Choice> chosen;
  for (const std::string& name : names) {
    const auto found = std::find_if(
        all.begin(), all.end(), [&](Choice choice) { return name_of(choice) == name; });
    if (found == all.end()) {
      throw std::invalid_argument("unknown: " + name);
    }
    chosen.push_back(*found);
  }
  return chosen;
}

void check(int status, const char* call) {
  if (status != HIPPOGRIFF_OK) {
    hippogriff_error error{};
    hippogriff_last_error(&error);
    throw std::runtime_error(std::string(call) + ": " + error.message);
  }
}

nlohmann::json take_json(char* text) {
  nlohmann::json json = nlohmann::json::parse(text);
  hippogriff_free_string(text);
  return json;
}

// The runtime and a piece of its device memory, for the whole of main.
class Session {
 public:
  Session() { check(hippogriff_init(), "hippogriff_init"); }

  ~Session() {
    hippogriff_free(memory_);
    hippogriff_deinit();
  }

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  std::uint64_t allocate(const std::string& device, std::uint64_t size) {
    check(hippogriff_malloc(device.c_str(), size, &memory_), "hippogriff_malloc");
    return reinterpret_cast<std::uint64_t>(memory_);
  }

 private:
  void* memory_ = nullptr;
};

std::unique_ptr<bench::ReferenceDevice> make_device(const std::string& name) {
  std::string why_not;
  if (name.empty() || name.starts_with("cuda:")) {
    const int index = name.empty() ? 0 : static_cast<int>(parse_index(name.substr(5)));
    auto device = bench::make_cuda_reference(index, why_not);
    if (device != nullptr) {
      return device;
    }
    if (!name.empty()) {
      throw std::runtime_error(name + ": " + why_not);
    }
    std::cout << "on device host: " << why_not << '\n';
  } else if (name != "host") {
    throw std::invalid_argument("the device is host or cuda:N, not " + name);
  }
  return bench::make_host_reference();
}

nlohmann::json describe(const Options& options,
                        bench::ReferenceDevice& device,
                        const std::vector<bench::Place>& places,
                        int argc,
                        char** argv) {
  nlohmann::json document = {{"schema", "hippogriff-bench/1"},
                             {"program", "transfer_bench"},
                             {"commit", options.commit},
                             {"started", bench::utc_now()},
                             {"command_line", std::vector<std::string>(argv, argv + argc)},
                             {"budget_seconds", options.budget_seconds},
                             {"versions", {{"hippogriff", hippogriff_version()}}},
                             {"machine", bench::machine_facts()},
                             {"results", nlohmann::json::array()},
                             {"latencies", nlohmann::json::array()},
                             {"dropped", nlohmann::json::array()}};
  document["machine"]["device"] = device.facts();
  for (const bench::Place& place : places) {
    document["machine"]["places"].push_back(bench::place_facts(place));
  }
  return document;
}

void show_latency(const nlohmann::json& result) {
  if (result.contains("why_absent")) {
    std::cout << result["contender"].get<std::string>()
              << " failed: " << result["why_absent"].get<std::string>() << '\n';
  }
  if (!result.contains("seconds")) {
    return;
  }
  const nlohmann::json& seconds = result["seconds"];
  std::cout << result["filesystem"].get<std::string>() << ' '
            << result["direction"].get<std::string>() << ' ' << result["state"].get<std::string>()
            << ' ' << result["size_bytes"] << " B  " << result["contender"].get<std::string>()
            << std::fixed << std::setprecision(1) << "  p50 " << seconds["p50"].get<double>() * 1e6
            << " us  mean " << seconds["mean"].get<double>() * 1e6 << " us  p99 "
            << seconds["p99"].get<double>() * 1e6 << " us\n"
            << std::flush;
}

// The small operations of one size to measure.
void add_latency_plans(const bench::Plan& plan,
                       std::uint64_t size,
                       std::vector<bench::LatencyPlan>& to) {
  const std::uint64_t file_size = std::min<std::uint64_t>(plan.sizes.back(), 1024 * mebibyte);
  if (size > mebibyte || size >= file_size) {
    return;
  }
  const unsigned operations = plan.rounds >= 5 ? 1000 : 200;
  for (const bench::Place& place : plan.places) {
    for (const bench::Direction direction : plan.directions) {
      to.push_back({&place, direction, bench::State::cached, size, file_size, operations});
      if (direction == bench::Direction::send && !place.in_memory) {
        to.push_back({&place, direction, bench::State::cold, size, file_size, operations});
      }
    }
  }
}

std::vector<bench::LatencyPlan> latency_plans(const bench::Plan& plan) {
  std::vector<bench::LatencyPlan> plans;
  for (const std::uint64_t size : plan.sizes) {
    add_latency_plans(plan, size, plans);
  }
  return plans;
}

void run_latencies(const bench::Bench& bench, const bench::Plan& plan, nlohmann::json& document) {
  for (const bench::LatencyPlan& one : latency_plans(plan)) {
    if (bench::now_seconds() > plan.deadline) {
      document["dropped"].push_back({{"latency_of_bytes", one.size}, {"contender", "all"}});
      continue;
    }
    for (const nlohmann::json& result : bench::measure_latency(bench, one)) {
      show_latency(result);
      document["latencies"].push_back(result);
    }
  }
}

void show(const bench::Case& what, const std::vector<bench::Measurement>& results) {
  std::cout << what.place->filesystem << ' ' << bench::direction_name(what.direction) << ' '
            << bench::state_name(what.state) << ' ' << what.size / mebibyte << " MiB\n"
            << std::flush;
  for (const bench::Measurement& result : results) {
    if (!result.costs.empty()) {
      std::puts(bench::to_line(what, result).c_str());
    } else if (result.planned > 0) {
      std::printf("  %-22s absent: %s\n",
                  result.contender->name().c_str(),
                  result.why_absent.empty() ? "no time" : result.why_absent.c_str());
    }
  }
  std::fflush(stdout);
}

bench::Plan make_plan(const Options& options) {
  using bench::Direction;
  using bench::State;
  bench::Plan plan;
  plan.deadline = bench::now_seconds() + options.budget_seconds;
  plan.sizes = options.sizes;
  // Operations are at random offsets of a file that no cache of a processor holds.
  if (options.latency_only && plan.sizes.back() < 256 * mebibyte) {
    plan.sizes.push_back(256 * mebibyte);
  }
  plan.rounds = options.rounds;
  plan.directions =
      choose(options.directions, {Direction::send, Direction::recv}, bench::direction_name);
  plan.states =
      choose(options.states,
             {State::cached, State::cold, State::half_cached, State::striped, State::empty_file},
             bench::state_name);
  for (const std::string& directory : options.directories) {
    plan.places.push_back(bench::find_place(directory));
  }
  return plan;
}

void calibrate(const Options& options, const std::string& device, nlohmann::json& document) {
  for (const std::string& directory : options.directories) {
    char* text = nullptr;
    const double start = bench::now_seconds();
    check(hippogriff_calibrate(device.c_str(), directory.c_str(), nullptr, nullptr, &text),
          "hippogriff_calibrate");
    document["calibration"][directory] = take_json(text);
    std::printf("calibrated %s in %.1f s\n", directory.c_str(), bench::now_seconds() - start);
  }
}

void make_sources(const bench::Plan& plan, bool keep) {
  for (const bench::Place& place : plan.places) {
    if (keep && access(place.source().c_str(), R_OK) == 0 &&
        bench::Descriptor(place.source(), 0).get() >= 0) {
      const bench::Descriptor file(place.source(), 0);
      if (lseek(file.get(), 0, SEEK_END) == static_cast<off_t>(plan.sizes.back())) {
        continue;
      }
    }
    const double start = bench::now_seconds();
    bench::create_source(place, plan.sizes.back());
    std::printf("wrote %s in %.1f s\n", place.source().c_str(), bench::now_seconds() - start);
  }
}

void remove_files(const bench::Plan& plan, bool keep_sources) {
  for (const bench::Place& place : plan.places) {
    unlink(place.target().c_str());
    if (!keep_sources) {
      unlink(place.source().c_str());
    }
  }
}

void keep_only(const std::vector<std::string>& names, bench::Contenders& contenders) {
  for (const std::string& name : names) {
    if (std::none_of(contenders.begin(), contenders.end(), [&](const auto& contender) {
          return contender->name() == name;
        })) {
      throw std::invalid_argument("no contender of this name here: " + name);
    }
  }
  std::erase_if(contenders, [&](const auto& contender) {
    return !names.empty() &&
           std::find(names.begin(), names.end(), contender->name()) == names.end();
  });
}

void run_all(const Options& options,
             const bench::Plan& plan,
             bench::ReferenceDevice& device,
             nlohmann::json& document) {
  Session session;
  if (options.calibrate) {
    calibrate(options, device.name(), document);
  }
  const std::size_t pinned_size = 256 * mebibyte;
  const bench::Bench bench{device,
                           session.allocate(device.name(), plan.sizes.back()),
                           {device.allocate_pinned(pinned_size), pinned_size}};
  device.fill(bench.device_memory, 0, plan.sizes.back());  // so that the memory is really there
  make_sources(plan, options.keep_files);
  const auto save = [&] {
    if (!options.json.empty()) {
      document["seconds"] = bench::now_seconds() - (plan.deadline - options.budget_seconds);
      bench::save(document, options.json);
    }
  };
  if (options.latency) {
    run_latencies(bench, plan, document);
    save();
  }
  bench::Contenders contenders;
  const bench::Effort effort = options.quick ? bench::Effort::quick : bench::Effort::full;
  bench::add_limits(contenders, bench, effort);
  bench::add_ours(contenders, bench, effort);
  bench::add_hand_written(contenders, bench, effort);
  bench::add_cufile(contenders, bench);
  keep_only(options.contenders, contenders);
  const auto cases =
      options.latency_only
          ? std::vector<bench::PlannedCase>()
          : bench::plan_cases(plan, contenders, plan.deadline - bench::now_seconds());
  bench::run_cases(bench,
                   contenders,
                   plan,
                   cases,
                   document["dropped"],
                   [&](const bench::Case& what, const std::vector<bench::Measurement>& results) {
                     show(what, results);
                     for (const bench::Measurement& result : results) {
                       document["results"].push_back(bench::to_json(what, result));
                     }
                     save();
                   });
  char* text = nullptr;
  check(hippogriff_stats(&text), "hippogriff_stats");
  document["stats"] = take_json(text);
  check(hippogriff_info(plan.places.front().directory.c_str(), &text), "hippogriff_info");
  document["info"] = take_json(text);
  save();
  std::printf("%zu repetitions dropped for want of time\n", document["dropped"].size());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    const bench::Plan plan = make_plan(options);
    const auto device = make_device(options.device);
    nlohmann::json document = describe(options, *device, plan.places, argc, argv);
    try {
      run_all(options, plan, *device, document);
    } catch (...) {
      remove_files(plan, options.keep_files);
      throw;
    }
    remove_files(plan, options.keep_files);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    static_cast<void>(std::fprintf(stderr, "transfer_bench: %s\n", error.what()));
    return EXIT_FAILURE;
  }
}
