// Sorting floats: buckets by histogram over all blocks, a sort in shared memory within a block.
#pragma once

#include "workloads/hybridsort/hybridsort_kernel.hpp"
#include "workloads/papers/program.hpp"

// Input: float32. Output: the same in ascending order; -0 before 0, NaNs at the ends by their sign.
Format hybridsort_format();
std::uint64_t hybridsort_output_bytes(const Numbers& numbers);

// In one pass: nothing is less than what stands before it, and the sums of a 64-bit hash over the
// input and the output are equal.
Verdict hybridsort_check(const Input& in, const File& out);
