// Environment variables, a line each: settings within their bounds, or a refusal that names the
// variable.
#include "base/error.hpp"
#include "transfer/settings.hpp"
#include "transfer/work_map.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace {

using namespace hippogriff;  // NOLINT(google-build-using-namespace)

// The first letter of a line says which; the rest is the value.
constexpr const char* variables[] = {"HIPPOGRIFF_DEVICE",
                                     "HIPPOGRIFF_TRACE",
                                     "HIPPOGRIFF_PINBUFFER",
                                     "HIPPOGRIFF_PARKING",
                                     "HIPPOGRIFF_ROUTE",
                                     "HIPPOGRIFF_CHANNELS",
                                     "HIPPOGRIFF_PIECE",
                                     "HIPPOGRIFF_MAPPED_AFTER",
                                     "HIPPOGRIFF_THREADS",
                                     "HIPPOGRIFF_CPUS",
                                     "HIPPOGRIFF_MEMORY_TIMEOUT_MS",
                                     "HIPPOGRIFF_CALIBRATION",
                                     "HIPPOGRIFF_HOST_LINK"};

// NOLINTBEGIN(concurrency-mt-unsafe): there is one thread
void set_environment(std::string_view text) {
  for (const char* name : variables) {
    unsetenv(name);
  }
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const int index = line.empty() ? -1 : line[0] - 'a';
    if (index >= 0 && std::cmp_less(index, std::size(variables))) {
      setenv(variables[index], line.c_str() + 1, 1);
    }
  }
}

// NOLINTEND(concurrency-mt-unsafe)

void check(const Settings& settings) {
  HIPPO_ASSERT(settings.threads_max >= 2 && settings.threads_max <= 256);
  HIPPO_ASSERT(settings.channels_max >= 1);
  HIPPO_ASSERT(settings.piece_bytes_max >= std::uint64_t{64} << 10);
  HIPPO_ASSERT(settings.piece_bytes_max <= std::uint64_t{2} << 20);
  HIPPO_ASSERT(settings.piece_bytes_max % WorkMap::cut_bytes == 0);
  HIPPO_ASSERT(std::isfinite(settings.host_link_bytes_per_second));
  HIPPO_ASSERT(settings.host_link_bytes_per_second >= 0);
  HIPPO_ASSERT(settings.routes.empty() || settings.routes.front() != Route::automatic);
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_environment({reinterpret_cast<const char*>(data), size});
  try {
    check(Settings::from_environment());
  } catch (const Error& error) {
    HIPPO_ASSERT(error.failure().status == Status::invalid_argument);
    HIPPO_ASSERT(error.failure().operation.find("HIPPOGRIFF_") != std::string::npos);
  }
  return 0;
}
