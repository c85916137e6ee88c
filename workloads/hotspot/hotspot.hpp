// HotSpot: the temperature of a chip's cells, which heat by their power and share it with their
// neighbours and the air above (Huang et al., "HotSpot: a compact thermal modeling methodology",
// 2006; one layer, explicit steps).
#pragma once

#include "workloads/hotspot/hotspot_kernel.hpp"
#include "workloads/papers/program.hpp"

// By the size of the chip and its cells, the length of a step, and the air.
HotspotPhysics hotspot_physics(const Numbers& numbers);

// The side of a cell, in metres.
double hotspot_cell_metres(const Numbers& numbers);

// Input: temperatures, then powers, each rows x rows float32 row by row. Output: temperatures.
Format hotspot_format();
std::uint64_t hotspot_output_bytes(const Numbers& numbers);

// Temperatures of the output are compared with steps in double: every cell of small chips, cells in
// patches of large ones. In those every cell must be no colder than the coldest and no hotter than
// power can have made it.
Verdict hotspot_check(const Input& in, const File& out);
