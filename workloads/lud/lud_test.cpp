// The decompositions agree with the textbook's and the oracle tells right from wrong.
#include "lud_cpu.hpp"
#include "lud_kernel.hpp"
#include "lud_oracle.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace {

std::vector<float> make_matrix(std::size_t n) {
  std::vector<float> matrix(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    lud_fill_row(matrix.data() + i * n, n, i, 7);
  }
  return matrix;
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, std::size_t n) {
  ASSERT_EQ(got.size(), want.size());
  const double tolerance =
      8.0 * std::sqrt(static_cast<double>(n)) * std::numeric_limits<float>::epsilon();
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * (1.0 + std::abs(want[i])))
        << "row " << i / n << " column " << i % n;
  }
}

// A folder of this test's own, removed with all that is in it.
class LudFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "lud_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const char* name) const { return (folder_ / name).string(); }

  void write_matrix(const char* name, const std::vector<float>& matrix) const {
    std::ofstream file(path(name), std::ios::binary);
    file.write(reinterpret_cast<const char*>(matrix.data()),
               static_cast<std::streamsize>(matrix.size() * sizeof(float)));
    ASSERT_TRUE(file.good());
  }

  void generate_matrix(std::size_t n) const {
    const int fd = open(path("in").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ASSERT_GE(fd, 0);
    lud_generate(fd, path("in"), n, 7);
    close(fd);
  }

  // Generates a matrix file and the file of its decomposition.
  std::vector<float> decompose(std::size_t n) {
    generate_matrix(n);
    std::vector<float> matrix = make_matrix(n);
    lud_on_cpu(matrix.data(), n);
    write_matrix("out", matrix);
    return matrix;
  }

 private:
  std::filesystem::path folder_;
};

class LudOrders : public testing::TestWithParam<std::size_t> {};

TEST_P(LudOrders, cpu_decomposition_agrees_with_the_textbook) {
  const std::size_t n = GetParam();
  std::vector<float> got = make_matrix(n);
  std::vector<float> want = got;
  lud_on_cpu(got.data(), n);
  lud_textbook(want.data(), n);
  expect_close(got, want, n);
}

TEST_P(LudOrders, gpu_decomposition_agrees_with_the_textbook) {
  if (lud_gpu_count() == 0) {
    GTEST_SKIP() << "there is no GPU here";
  }
  const std::size_t n = GetParam();
  std::vector<float> got = make_matrix(n);
  std::vector<float> want = got;
  lud_through_gpu(got.data(), n, 0);
  lud_textbook(want.data(), n);
  expect_close(got, want, n);
}

INSTANTIATE_TEST_SUITE_P(EdgesOfBlocks,
                         LudOrders,
                         testing::Values(1, 2, 31, 32, 33, 63, 64, 65, 96, 97, 129, 320, 391));

TEST(LudTextbook, decomposes_a_matrix_done_by_hand) {
  std::vector<float> matrix = {2, 1, 1, 4, 3, 3, 8, 7, 9};
  lud_textbook(matrix.data(), 3);
  EXPECT_EQ(matrix, (std::vector<float>{2, 1, 1, 2, 1, 1, 4, 3, 2}));
}

TEST_F(LudFiles, generated_matrix_is_diagonally_dominant) {
  generate_matrix(100);
  const std::vector<float> matrix = make_matrix(100);
  std::vector<float> read(matrix.size());
  const int fd = open(path("in").c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(lud_order_of(fd, "in"), 100U);
  lud_read(fd, read.data(), read.size() * sizeof(float), 0, "in");
  close(fd);
  EXPECT_EQ(read, matrix);
  for (std::size_t i = 0; i < 100; ++i) {
    double others = 0;
    for (std::size_t j = 0; j < 100; ++j) {
      others += i == j ? 0.0 : std::abs(read[i * 100 + j]);
    }
    EXPECT_GT(read[i * 100 + i], others);
  }
}

TEST_F(LudFiles, check_accepts_a_correct_small_decomposition_by_every_element) {
  decompose(200);
  const LudResidual residual = lud_check(path("in"), path("out"));
  EXPECT_TRUE(residual.every_element);
  EXPECT_LE(residual.worst, 1.0);
  EXPECT_GT(residual.worst, 0.0);
}

TEST_F(LudFiles, check_accepts_a_correct_large_decomposition_by_products) {
  decompose(1100);
  const LudResidual residual = lud_check(path("in"), path("out"));
  EXPECT_FALSE(residual.every_element);
  EXPECT_LE(residual.worst, 1.0);
  EXPECT_GT(residual.worst, 0.0);
}

TEST_F(LudFiles, check_finds_one_wrong_element_of_a_small_decomposition) {
  std::vector<float> result = decompose(200);
  result[150 * 200 + 20] += 0.01F;
  write_matrix("out", result);
  const LudResidual residual = lud_check(path("in"), path("out"));
  EXPECT_GT(residual.worst, 1.0);
}

TEST_F(LudFiles, check_finds_a_page_of_zeros_in_a_large_decomposition) {
  std::vector<float> result = decompose(1100);
  std::fill_n(result.begin() + 700L * 1100 + 20, 1024, 0.0F);
  write_matrix("out", result);
  EXPECT_GT(lud_check(path("in"), path("out")).worst, 1.0);
}

TEST_F(LudFiles, check_finds_not_a_number) {
  for (const std::size_t n : {std::size_t{200}, std::size_t{1100}}) {
    std::vector<float> result = decompose(n);
    result[n * n - 1] = std::numeric_limits<float>::quiet_NaN();
    write_matrix("out", result);
    EXPECT_GT(lud_check(path("in"), path("out")).worst, 1.0) << n;
  }
}

TEST_F(LudFiles, check_finds_the_matrix_itself_in_place_of_its_decomposition) {
  for (const std::size_t n : {std::size_t{200}, std::size_t{1100}}) {
    decompose(n);
    write_matrix("out", make_matrix(n));
    EXPECT_GT(lud_check(path("in"), path("out")).worst, 1.0) << n;
  }
}

TEST_F(LudFiles, files_that_are_no_square_matrix_are_refused) {
  write_matrix("in", std::vector<float>(5));
  write_matrix("out", std::vector<float>(4));
  EXPECT_THROW(lud_check(path("in"), path("out")), std::runtime_error);
  EXPECT_THROW(lud_check(path("out"), path("in")), std::runtime_error);
  EXPECT_THROW(lud_check(path("out"), path("absent")), std::system_error);
  write_matrix("in", {});
  EXPECT_THROW(lud_check(path("in"), path("in")), std::runtime_error);
}

}  // namespace
