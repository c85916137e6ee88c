// The k nearest neighbours of one place among many: plain distances of latitudes and longitudes.
#pragma once

#include "workloads/nn/nn_kernel.hpp"
#include "workloads/papers/program.hpp"

// Input: records of float32 latitude and longitude. Output: the nearest records, nearest first and
// of equals the first: uint32 the record's number, float32 its distance.
Format nn_format();
std::uint64_t nn_output_bytes(const Numbers& numbers);

// How many are found: no more than there are.
unsigned nn_found(const Numbers& numbers);

// Finds them by a heap in one pass over the file, and compares bit by bit.
Verdict nn_check(const Input& in, const File& out);
