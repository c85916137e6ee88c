// Blocked right-looking LU on the CPU: a panel of columns, its rows of U, then the rest in
// parallel.
#include "lud_cpu.hpp"

#include <algorithm>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t block = 64;

// row -= factor * source, elements [first, last).
void subtract_scaled(
    float* row, const float* source, float factor, std::size_t first, std::size_t last) {
  for (std::size_t j = first; j < last; ++j) {
    row[j] -= factor * source[j];
  }
}

// Columns [k, end) of all rows from k on: the diagonal block and L below it.
void factor_panel(float* matrix, std::size_t n, std::size_t k, std::size_t end) {
  for (std::size_t p = k; p < end; ++p) {
    const float* pivot = matrix + p * n;
    for (std::size_t i = p + 1; i < n; ++i) {
      float* row = matrix + i * n;
      row[p] /= pivot[p];
      subtract_scaled(row, pivot, row[p], p + 1, end);
    }
  }
}

// Rows [k, end) right of the diagonal block, columns [first, last): U of these rows.
void solve_upper(float* matrix,
                 std::size_t n,
                 std::size_t k,
                 std::size_t end,
                 std::size_t first,
                 std::size_t last) {
  for (std::size_t i = k + 1; i < end; ++i) {
    for (std::size_t p = k; p < i; ++p) {
      subtract_scaled(matrix + i * n, matrix + p * n, matrix[i * n + p], first, last);
    }
  }
}

// Rows [first, last) below the block: subtracts L times U from what is right of the block. Columns
// go in strips that stay in the first-level caches together with the block's rows.
void update_rows(float* matrix,
                 std::size_t n,
                 std::size_t k,
                 std::size_t end,
                 std::size_t first,
                 std::size_t last) {
  constexpr std::size_t strip = 256;
  for (std::size_t left = end; left < n; left += strip) {
    const std::size_t right = std::min(left + strip, n);
    for (std::size_t i = first; i < last; ++i) {
      for (std::size_t p = k; p < end; ++p) {
        subtract_scaled(matrix + i * n, matrix + p * n, matrix[i * n + p], left, right);
      }
    }
  }
}

// Calls work(first, last) for shares of [begin, end) on as many threads as the shares are worth.
template <class Work>
void in_parallel(std::size_t begin, std::size_t end, std::size_t share_min, const Work& work) {
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t shares = std::clamp<std::size_t>((end - begin) / share_min, 1, cores);
  std::vector<std::jthread> threads;
  for (std::size_t s = 0; s < shares; ++s) {
    const std::size_t first = begin + (end - begin) * s / shares;
    const std::size_t last = begin + (end - begin) * (s + 1) / shares;
    if (s + 1 == shares) {
      work(first, last);
    } else {
      threads.emplace_back([&work, first, last] { work(first, last); });
    }
  }
}

}  // namespace

void lud_on_cpu(float* matrix, std::size_t n) {
  for (std::size_t k = 0; k < n; k += block) {
    const std::size_t end = std::min(k + block, n);
    factor_panel(matrix, n, k, end);
    if (end == n) {
      break;
    }
    in_parallel(end, n, 256, [=](std::size_t first, std::size_t last) {
      solve_upper(matrix, n, k, end, first, last);
    });
    in_parallel(end, n, 32, [=](std::size_t first, std::size_t last) {
      update_rows(matrix, n, k, end, first, last);
    });
  }
}

void lud_textbook(float* matrix, std::size_t n) {
  std::vector<double> work(matrix, matrix + n * n);
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = work[i * n + k] / work[k * n + k];
      work[i * n + k] = factor;
      for (std::size_t j = k + 1; j < n; ++j) {
        work[i * n + j] -= factor * work[k * n + j];
      }
    }
  }
  std::transform(
      work.begin(), work.end(), matrix, [](double value) { return static_cast<float>(value); });
}
