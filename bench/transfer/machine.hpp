// Facts of the machine that results belong to: processor, memory, kernel, file systems, drives.
#pragma once

#include "transfer/bench_file.hpp"

#include <nlohmann/json.hpp>

namespace bench {

nlohmann::json machine_facts();
nlohmann::json place_facts(const Place& place);
std::string utc_now();

}  // namespace bench
