// What people and scripts read: JSON of transfers, machines, routes and counters.
#pragma once

#include "transfer/runtime.hpp"

#include <string>

namespace hippogriff {

std::string report_json(const Transfer& transfer);
// "mapped+pipelined": the routes that carried bytes, in the order of the ABI; of a transfer without
// any, the one that was chosen.
std::string route_taken(const Transfer& transfer);
std::string stats_json(Runtime& runtime);
// Devices, the drive below `path`, and what each route can do there.
std::string info_json(Runtime& runtime, const std::string& path);
// The router's view of one extent. Throws as a submission would.
std::string explain_json(Runtime& runtime, const Submission& submission);

}  // namespace hippogriff
