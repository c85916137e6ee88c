// Gaussian elimination without pivoting, blocked, and the solution by substitution backwards
// (Golub and Van Loan, "Matrix Computations", chapter 3).
#pragma once

#include "workloads/gaussian/gaussian_kernel.hpp"
#include "workloads/papers/program.hpp"

// Input: a matrix of rows x rows float32, row by row, then the right side, rows float32. `generate`
// makes matrices that need no pivoting (diagonally dominant). Output: the solution, rows float32.
Format gaussian_format();
std::uint64_t gaussian_output_bytes(const Numbers& numbers);

// Every equation with the solution put in, in double, in one pass over the matrix. Rounding may
// cause 4 sqrt(rows) epsilon (|A| |x| + |b|).
Verdict gaussian_check(const Input& in, const File& out);
