// What LU runs are checked against: test matrices in files, and the residual of a decomposition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// How far L U is from A.
struct LudResidual {
  double worst = 0;  // the largest residual as a share of what rounding may cause; <= 1 is fine
  std::size_t worst_row = 0;
  bool every_element = false;  // each element was compared; else random combinations of columns
};

// One row of the test matrix: uniform in [-1, 1) from `seed`, and the diagonal element larger than
// the sum of all others' magnitudes, so that no pivoting is needed.
void lud_fill_row(float* row, std::size_t n, std::size_t index, std::uint64_t seed);

// Writes the n x n test matrix, row-major float32, nothing else in the file. Throws
// std::system_error with the path and errno.
void lud_generate(int fd, const std::string& path, std::size_t n, std::uint64_t seed);

// The n of n x n float32 in so many bytes. Throws std::invalid_argument when these are no square.
std::uint64_t lud_order_of_bytes(std::uint64_t size_bytes);

// The n of a file of n x n float32. Throws std::runtime_error when its size is not such a square.
std::size_t lud_order_of(int fd, const std::string& path);

// Reads or writes exactly size_bytes at `offset` (bytes). Throws std::system_error, or
// std::runtime_error when the file ends first.
void lud_read(
    int fd, void* to, std::size_t size_bytes, std::size_t offset, const std::string& path);
void lud_write(
    int fd, const void* from, std::size_t size_bytes, std::size_t offset, const std::string& path);

// Compares L U against A in double. Up to 1024 rows every element; beyond that (L U) x against A x
// for random vectors x of -1 and 1 (Freivalds), in one pass over both files and memory for a few
// rows. Rounding may cause 4 sqrt(n) epsilon (|A| + |L||U|), a statistical bound: errors of random
// sign add up as a random walk.
LudResidual lud_check(const std::string& matrix_path, const std::string& result_path);
