// LU decomposition on the CPU: what plays the kernel on device `host`, and the slow one to trust.
#pragma once

#include <cstddef>

// Both decompose a row-major n x n matrix in place, without pivoting: U on and above the diagonal,
// L below it with an implicit unit diagonal. The caller owns the memory.

// Blocked, on all cores.
void lud_on_cpu(float* matrix, std::size_t n);

// The textbook's three loops with double accumulators; for matrices of a few hundred rows.
void lud_textbook(float* matrix, std::size_t n);
