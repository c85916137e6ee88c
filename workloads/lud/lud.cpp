// The papers' example: LU decomposition of a matrix that comes from a file and goes to a file.
#include "workloads/lud/lud_cpu.hpp"
#include "workloads/lud/lud_kernel.hpp"
#include "workloads/lud/lud_oracle.hpp"
#include "workloads/papers/movement.hpp"
#include "workloads/papers/program.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <stdexcept>

namespace {

constexpr std::uint64_t order_max = 46340;  // n * n still counts in the kernels' 32-bit integers

std::uint64_t matrix_bytes(const Numbers& numbers) {
  const std::uint64_t n = numbers.at("rows");
  return n * n * sizeof(float);
}

Format lud_format() {
  return {"lud",
          {{"rows", 1024, 1, order_max, "of the matrix"}},
          [](const Numbers& numbers) { return std::vector<std::uint64_t>{matrix_bytes(numbers)}; },
          lud_order_of_bytes};
}

void generate(const Numbers& numbers, const RandomField& random, const InputWriter& writer) {
  lud_generate(writer.fd(), writer.path(), numbers.at("rows"), random.seed());
}

void decompose(Job& job, float* matrix) {
  const std::size_t n = job.in.numbers().at("rows");
  const auto rows = static_cast<double>(n);
  job.cost.operations = 2.0 / 3.0 * rows * rows * rows;
  job.memory.device().is_gpu() ? lud_on_gpu(matrix, n) : lud_on_cpu(matrix, n);
}

void baseline(Job& job) {
  const HostArray<float> matrix = read_array<float>(job, 0);
  job.phases.end("read");
  float* d_matrix = copy_in(job, matrix);
  job.phases.end("copy_in");
  decompose(job, d_matrix);
  job.phases.end("kernels");
  const HostArray<float> result = copy_out(job, d_matrix, matrix.count());
  job.phases.end("copy_out");
  write_array(job, result);
  job.phases.end("write");
}

void run(Job& job) {
  auto* d_matrix = send<float>(job, 0);
  job.phases.end("send");
  decompose(job, d_matrix);
  job.phases.end("kernels");
  recv(job, d_matrix, job.in.section(0).size_bytes / sizeof(float));
  job.phases.end("recv");
}

Verdict check(const Input& in, const File& out) {
  const LudResidual residual = lud_check(in.file().path(), out.path());
  std::array<char, 160> words{};
  static_cast<void>(
      std::snprintf(words.data(),
                    words.size(),
                    "the largest residual is %.3g of what rounding may cause (row %zu, %s)",
                    residual.worst,
                    residual.worst_row,
                    residual.every_element ? "every element" : "random combinations of columns"));
  return {residual.worst <= 1.0, words.data()};
}

}  // namespace

int main(int argc, char** argv) {
  return paper_main(
      argc,
      argv,
      {lud_format(), "LU decomposition of a matrix", matrix_bytes, generate, run, baseline, check});
}
