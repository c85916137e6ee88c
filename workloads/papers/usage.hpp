// What the process has cost the machine so far.
#pragma once

#include <cstdint>
#include <string>

struct Usage {
  double user_seconds = 0;
  double system_seconds = 0;
  std::int64_t minor_faults = 0;
  std::int64_t major_faults = 0;
  std::int64_t voluntary_switches = 0;
  std::int64_t involuntary_switches = 0;
  std::uint64_t peak_resident_bytes = 0;
};

// Of all threads since the process began. Throws std::system_error or std::runtime_error.
Usage usage_now();

std::string to_json(const Usage& usage);
