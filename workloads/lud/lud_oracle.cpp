// Test matrices and the check of a decomposition against the matrix it came from.
#include "lud_oracle.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <system_error>

namespace {

constexpr std::size_t every_element_max = 1024;
constexpr std::size_t vector_count = 4;

// A descriptor that closes itself.
class File {
 public:
  File(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) {
      throw std::system_error(errno, std::generic_category(), "open " + path);
    }
  }

  ~File() { close(fd_); }

  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

// A well-mixed 64-bit number for each index (the finaliser of the SplitMix64 generator).
std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

double rounding_share(double residual, double scale, std::size_t n) {
  const double allowed =
      4.0 * std::sqrt(static_cast<double>(n)) * std::numeric_limits<float>::epsilon() * scale;
  // Not finite means wrong, and NaN compares false with everything.
  return std::isfinite(residual) ? residual / allowed : std::numeric_limits<double>::infinity();
}

void note(LudResidual& worst, double share, std::size_t row) {
  if (share > worst.worst) {
    worst.worst = share;
    worst.worst_row = row;
  }
}

// Row `i` of L U, and of |L||U|.
void multiply_row(const std::vector<float>& lu,
                  std::size_t n,
                  std::size_t i,
                  std::vector<double>& product,
                  std::vector<double>& magnitude) {
  product.assign(n, 0.0);
  magnitude.assign(n, 0.0);
  for (std::size_t k = 0; k <= i; ++k) {
    const double l = k == i ? 1.0 : lu[i * n + k];
    for (std::size_t j = k; j < n; ++j) {
      product[j] += l * lu[k * n + j];
      magnitude[j] += std::abs(l * lu[k * n + j]);
    }
  }
}

LudResidual check_every_element(const std::vector<float>& a,
                                const std::vector<float>& lu,
                                std::size_t n) {
  LudResidual result;
  result.every_element = true;
  std::vector<double> product;
  std::vector<double> magnitude;
  for (std::size_t i = 0; i < n; ++i) {
    multiply_row(lu, n, i, product, magnitude);
    for (std::size_t j = 0; j < n; ++j) {
      const double scale = std::abs(a[i * n + j]) + magnitude[j];
      if (scale > 0 || !std::isfinite(scale)) {
        note(result, rounding_share(std::abs(product[j] - a[i * n + j]), scale, n), i);
      }
    }
  }
  return result;
}

// U x for all rows seen so far, and |U| 1, which L's rows below need.
struct Products {
  std::vector<std::vector<double>> x;
  std::vector<std::vector<double>> upper;  // U x
  std::vector<double> upper_magnitude;     // |U| 1
};

void check_row(std::span<const float> a,
               std::span<const float> lu,
               std::size_t i,
               Products& state,
               LudResidual& worst) {
  const std::size_t n = a.size();
  double magnitude = 0;
  double upper_magnitude = 0;
  for (std::size_t j = 0; j < n; ++j) {
    magnitude += std::abs(a[j]);
    magnitude += std::abs(lu[j]) * (j < i ? state.upper_magnitude[j] : 1.0);
    upper_magnitude += j < i ? 0.0 : std::abs(lu[j]);
  }
  state.upper_magnitude[i] = upper_magnitude;
  for (std::size_t v = 0; v < state.x.size(); ++v) {
    double expected = 0;
    double lower = 0;
    double upper = 0;
    for (std::size_t j = 0; j < i; ++j) {
      expected += a[j] * state.x[v][j];
      lower += lu[j] * state.upper[v][j];
    }
    for (std::size_t j = i; j < n; ++j) {
      expected += a[j] * state.x[v][j];
      upper += lu[j] * state.x[v][j];
    }
    state.upper[v][i] = upper;
    note(worst, rounding_share(std::abs(lower + upper - expected), magnitude, n), i);
  }
}

LudResidual check_products(const File& matrix,
                           const File& result,
                           std::size_t n,
                           const std::string& matrix_path,
                           const std::string& result_path) {
  std::mt19937_64 random(20161015);
  Products state;
  state.x.assign(vector_count, std::vector<double>(n));
  for (auto& vector : state.x) {
    for (double& element : vector) {
      element = (random() & 1U) != 0 ? 1.0 : -1.0;
    }
  }
  state.upper.assign(vector_count, std::vector<double>(n, 0.0));
  state.upper_magnitude.assign(n, 0.0);
  LudResidual worst;
  std::vector<float> a(n);
  std::vector<float> lu(n);
  const std::size_t row_bytes = n * sizeof(float);
  for (std::size_t i = 0; i < n; ++i) {
    lud_read(matrix.fd(), a.data(), row_bytes, i * row_bytes, matrix_path);
    lud_read(result.fd(), lu.data(), row_bytes, i * row_bytes, result_path);
    check_row(a, lu, i, state, worst);
  }
  return worst;
}

}  // namespace

void lud_fill_row(float* row, std::size_t n, std::size_t index, std::uint64_t seed) {
  double sum = 0;
  for (std::size_t j = 0; j < n; ++j) {
    const std::uint64_t bits = mix(mix(seed ^ index) + j) >> 40U;  // 24 bits: exact in a float
    row[j] = static_cast<float>(bits) * 0x1p-23F - 1.0F;
    sum += std::abs(row[j]);
  }
  row[index] = static_cast<float>(sum + 1.0);
}

void lud_generate(int fd, const std::string& path, std::size_t n, std::uint64_t seed) {
  const std::size_t rows_at_once = std::max<std::size_t>(1, (std::size_t{4} << 20U) / (n * 4));
  std::vector<float> rows(rows_at_once * n);
  for (std::size_t first = 0; first < n; first += rows_at_once) {
    const std::size_t count = std::min(rows_at_once, n - first);
    for (std::size_t i = 0; i < count; ++i) {
      lud_fill_row(rows.data() + i * n, n, first + i, seed);
    }
    lud_write(fd, rows.data(), count * n * sizeof(float), first * n * sizeof(float), path);
  }
}

std::uint64_t lud_order_of_bytes(std::uint64_t size_bytes) {
  const auto n = static_cast<std::uint64_t>(
      std::llround(std::sqrt(static_cast<double>(size_bytes) / sizeof(float))));
  if (n == 0 || n * n * sizeof(float) != size_bytes) {
    throw std::invalid_argument("no square matrix of float32 has " + std::to_string(size_bytes) +
                                " bytes");
  }
  return n;
}

std::size_t lud_order_of(int fd, const std::string& path) {
  struct stat facts{};
  if (fstat(fd, &facts) != 0) {
    throw std::system_error(errno, std::generic_category(), "stat " + path);
  }
  try {
    return lud_order_of_bytes(static_cast<std::uint64_t>(facts.st_size));
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

void lud_read(
    int fd, void* to, std::size_t size_bytes, std::size_t offset, const std::string& path) {
  for (std::size_t done = 0; done < size_bytes;) {
    const ssize_t count = pread(
        fd, static_cast<char*>(to) + done, size_bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "read " + path);
    }
    if (count == 0) {
      throw std::runtime_error("read " + path + ": ends at byte " + std::to_string(offset + done));
    }
    done += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
}

void lud_write(
    int fd, const void* from, std::size_t size_bytes, std::size_t offset, const std::string& path) {
  for (std::size_t done = 0; done < size_bytes;) {
    const ssize_t count = pwrite(fd,
                                 static_cast<const char*>(from) + done,
                                 size_bytes - done,
                                 static_cast<off_t>(offset + done));
    if (count < 0 && errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "write " + path);
    }
    done += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
}

LudResidual lud_check(const std::string& matrix_path, const std::string& result_path) {
  const File matrix(matrix_path, O_RDONLY);
  const File result(result_path, O_RDONLY);
  const std::size_t n = lud_order_of(matrix.fd(), matrix_path);
  if (lud_order_of(result.fd(), result_path) != n) {
    throw std::runtime_error(matrix_path + " and " + result_path + " differ in size");
  }
  if (n > every_element_max) {
    return check_products(matrix, result, n, matrix_path, result_path);
  }
  std::vector<float> a(n * n);
  std::vector<float> lu(n * n);
  lud_read(matrix.fd(), a.data(), a.size() * sizeof(float), 0, matrix_path);
  lud_read(result.fd(), lu.data(), lu.size() * sizeof(float), 0, result_path);
  return check_every_element(a, lu, n);
}
