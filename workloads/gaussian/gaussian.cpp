// The program: matrix and right side in, elimination and substitution, the solution out.
#include "workloads/gaussian/gaussian.hpp"

#include "workloads/papers/launch.hpp"
#include "workloads/papers/movement.hpp"

namespace {

constexpr std::size_t panel = GaussianSystem::panel;

// In [-1, 1), and the diagonal larger than all others of its row together.
void generate(const Numbers& numbers, const RandomField& random, const InputWriter& writer) {
  const std::uint64_t rows = numbers.at("rows");
  writer.fill<float>(0, [&](std::uint64_t i) {
    const float value = 2.0F * random.unit(0, i) - 1.0F;
    return i / rows == i % rows ? static_cast<float>(rows) + value : value;
  });
  writer.fill<float>(1, [&](std::uint64_t i) { return 2.0F * random.unit(1, i) - 1.0F; });
}

// Puts the solution in the right side's place.
void solve(Job& job, const GaussianSystem& system) {
  const Device& device = job.memory.device();
  std::size_t first = 0;
  for (; first + panel < system.rows; first += panel) {
    launch(device, GaussianDiagonal{system, first}, 1);
    const GaussianBeside beside{system, first};
    launch(device, beside, 2 * beside.tiles());
    const GaussianRest rest{system, first};
    launch(device, rest, rest.patches() * rest.patches());
    const auto left = static_cast<double>(system.rows - first - panel);
    job.cost.operations += 2.0 * panel * left * left;
    job.cost.bytes += 2.0 * sizeof(float) * left * left;
  }
  launch(device, GaussianDiagonal{system, first}, 1);
  for (;; first -= panel) {
    launch(device, GaussianSolve{system, first}, 1);
    if (first == 0) {
      break;
    }
    launch(device, GaussianAbove{system, first}, first / panel);
  }
  job.memory.wait();
}

void baseline(Job& job) {
  const std::size_t rows = job.in.numbers().at("rows");
  const HostArray<float> matrix = read_array<float>(job, 0);
  const HostArray<float> right = read_array<float>(job, 1);
  job.phases.end("read");
  float* d_matrix = copy_in(job, matrix);
  float* d_right = copy_in(job, right);
  job.phases.end("copy_in");
  solve(job, {rows, d_matrix, d_right});
  job.phases.end("kernels");
  const HostArray<float> solution = copy_out(job, d_right, rows);
  job.phases.end("copy_out");
  write_array(job, solution);
  job.phases.end("write");
}

void run(Job& job) {
  const std::size_t rows = job.in.numbers().at("rows");
  auto* d_matrix = send<float>(job, 0);
  auto* d_right = send<float>(job, 1);
  job.phases.end("send");
  solve(job, {rows, d_matrix, d_right});
  job.phases.end("kernels");
  recv(job, d_right, rows);
  job.phases.end("recv");
}

}  // namespace

int main(int argc, char** argv) {
  return paper_main(argc,
                    argv,
                    {gaussian_format(),
                     "a system of linear equations, by blocked elimination",
                     gaussian_output_bytes,
                     generate,
                     run,
                     baseline,
                     gaussian_check});
}
