// The part of array_bench on rows that are gathered on a GPU's stream.
#pragma once

#include "array_data.cuh"

#include <cstdint>

// Gathers random rows of a line each, and rows of few lines again and again, as an array chooses by
// itself, through its cache, and past it, by turns; prints JSON lines. Takes as much host memory
// again as the data, for the second array. Returns how many gathered values were wrong.
unsigned long long measure_gathers(const Data& data, std::uint32_t queue_count);
