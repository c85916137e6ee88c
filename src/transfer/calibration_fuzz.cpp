// The calibration file's parser: never anything but a calibration within bounds or a clean refusal,
// and what it takes is written and read back unchanged.
#include "base/error.hpp"
#include "transfer/calibration.hpp"
#include "transfer/router.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace {

using namespace hippogriff;  // NOLINT(google-build-using-namespace)

// The router must have an answer for every calibration that was let in.
void check_router(const Calibration& calibration) {
  TransferFacts facts;
  facts.size_bytes = std::uint64_t{1} << 32;
  facts.cached_fraction = 0.5;
  facts.direct_io = true;
  facts.can_map = true;
  facts.cores = 16;
  const auto decision = choose_route(facts, {}, calibration, Route::automatic);
  HIPPO_ASSERT(std::isfinite(decision.choice().seconds) && decision.choice().seconds > 0);
  HIPPO_ASSERT(std::isfinite(decision.choice().cpu_seconds));
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  CalibrationFile parsed;
  try {
    parsed = parse_calibration({reinterpret_cast<const char*>(data), size});
  } catch (const Error& error) {
    HIPPO_ASSERT(error.failure().status == Status::invalid_argument);
    return 0;
  }
  HIPPO_ASSERT(parse_calibration(format_calibration(parsed)) == parsed);
  for (const auto& link : parsed.links) {
    for (const auto& drive : parsed.drives) {
      check_router({.link = link.second, .drive = drive.second, .host = parsed.host});
    }
  }
  return 0;
}
