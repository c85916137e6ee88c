// The frame around the three programs: failures become words and exit statuses.
#include "workloads/sharing/program.hpp"

#include "workloads/sharing/device.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <stdexcept>

namespace {

constexpr int status_wrong = 1;
constexpr int status_usage = 2;
constexpr int status_no_memory = 3;

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  static_cast<void>(std::snprintf(text.data(), text.size(), "%.6f", seconds));
  return text.data();
}

void print_words(const char* name, const Result& result) {
  std::printf("%s on %s: %s, checksum %s\n",
              name,
              result.device.c_str(),
              result.answer.c_str(),
              result.checksum.c_str());
  for (const auto& [phase, seconds] : result.phases.seconds()) {
    std::printf("  %-10s %9.3f s\n", phase.c_str(), seconds);
  }
  if (result.checked > 0) {
    std::printf("  %llu checked, %llu wrong\n",
                static_cast<unsigned long long>(result.checked),
                static_cast<unsigned long long>(result.wrong));
  }
}

int complain(const char* name, const std::exception& error, int status) {
  static_cast<void>(std::fprintf(stderr, "%s: %s\n", name, error.what()));
  return status;
}

}  // namespace

void Phases::end(const std::string& phase) {
  const auto now = std::chrono::steady_clock::now();
  const double passed = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  const auto found = std::find_if(
      seconds_.begin(), seconds_.end(), [&](const auto& each) { return each.first == phase; });
  if (found == seconds_.end()) {
    seconds_.emplace_back(phase, passed);
  } else {
    found->second += passed;
  }
}

std::uint64_t memory_to_hold(const Options& options, std::uint64_t data_bytes) {
  const std::uint64_t wanted = options.number("memory");
  if (wanted != 0 && wanted < data_bytes) {
    throw std::invalid_argument("--memory " + std::to_string(wanted) + " is less than the " +
                                std::to_string(data_bytes) + " bytes that the data takes");
  }
  return wanted != 0 ? wanted : data_bytes;
}

std::uint64_t check_step(const Options& options, std::uint64_t count) {
  const std::uint64_t checks = options.number("checks");
  return count / checks + (count % checks != 0 || count == 0 ? 1 : 0);
}

std::string to_json(const char* name, const Result& result) {
  std::string phases;
  for (const auto& [phase, seconds] : result.phases.seconds()) {
    phases += (phases.empty() ? "\"" : ", \"") + phase + "\": " + seconds_text(seconds);
  }
  return std::string("{\"program\": \"") + name + R"(", "device": ")" + result.device +
         R"(", "memory_bytes": )" + std::to_string(result.memory_bytes) + R"(, "data_bytes": )" +
         std::to_string(result.data_bytes) + R"(, "checksum": ")" + result.checksum +
         R"(", "answer": )" + result.answer + R"(, "checked": )" + std::to_string(result.checked) +
         R"(, "wrong": )" + std::to_string(result.wrong) + R"(, "seconds": {)" + phases + "}}";
}

int run_program(const char* name,
                const std::vector<std::string_view>& words,
                const std::vector<NumberOption>& own,
                Result (*run)(const Options&)) {
  try {
    const Options options(words, own);
    if (options.help()) {
      std::printf("%s", options.usage(name).c_str());
      return 0;
    }
    const Result result = run(options);
    if (options.json()) {
      std::printf("%s\n", to_json(name, result).c_str());
    } else {
      print_words(name, result);
    }
    return result.wrong == 0 ? 0 : status_wrong;
  } catch (const std::invalid_argument& error) {
    return complain(name, error, status_usage);
  } catch (const NoDeviceMemory& error) {
    return complain(name, error, status_no_memory);
  } catch (const std::exception& error) {
    return complain(name, error, status_wrong);
  }
}
