// The program: a mesh in, iterations, the gas in its elements out.
#include "workloads/cfd/cfd.hpp"

#include "workloads/cfd/cfd_mesh.hpp"
#include "workloads/papers/launch.hpp"
#include "workloads/papers/movement.hpp"

#include <array>
#include <stdexcept>
#include <utility>

namespace {

constexpr unsigned stages = 3;

void generate(const Numbers& numbers, const RandomField& random, const InputWriter& writer) {
  const CfdBox box(numbers.at("cubes"), random);
  const std::uint64_t elements = box.elements();
  if (elements != cfd_elements(numbers)) {
    throw std::invalid_argument(
        "meshes that are no box are made of others' files: papers/rodinia.py");
  }
  writer.fill<float>(0, [&](std::uint64_t i) { return box.volume(i); });
  writer.fill<int>(1, [&](std::uint64_t i) {
    return box.neighbour(i % elements, static_cast<unsigned>(i / elements));
  });
  writer.fill<float>(2, [&](std::uint64_t i) {
    const auto component = static_cast<unsigned>(i / elements);
    return box.normal(i % elements, component / 3, component % 3);
  });
}

void begin(const Job& job, const CfdMesh& mesh, float* gas) {
  auto* damaged = job.memory.allocate<unsigned>(1);
  job.memory.put(damaged, 0U);
  launch(job.memory.device(),
         CfdBegin{mesh, cfd_far_gas(), gas, damaged},
         parts_of(mesh.elements, CfdBegin::threads));
  if (const unsigned count = job.memory.get(damaged); count > 0) {
    throw std::runtime_error(job.in.file().path() + " is damaged: " + std::to_string(count) +
                             " faces lead to elements that there are not");
  }
}

float* flow(Job& job, const float* volumes, const int* neighbours, const float* normals) {
  const CfdMesh mesh{cfd_elements(job.in.numbers()), volumes, neighbours, normals};
  const std::uint64_t iterations = job.in.numbers().at("iterations");
  auto* gas = job.memory.allocate<float>(cfd_variables * mesh.elements);
  auto* next = job.memory.allocate<float>(cfd_variables * mesh.elements);
  auto* between = job.memory.allocate<float>(cfd_variables * mesh.elements);
  auto* steps = job.memory.allocate<float>(mesh.elements);
  begin(job, mesh, gas);
  for (std::uint64_t i = 0; i < iterations; ++i) {
    const std::array<const float*, stages> from = {gas, next, between};
    const std::array<float*, stages> to = {next, between, next};
    for (unsigned stage = 0; stage < stages; ++stage) {
      const float share = 1.0F / static_cast<float>(stages - stage);
      const CfdStage work{
          mesh, cfd_far_gas(), gas, from.at(stage), to.at(stage), steps, stage == 0, share};
      launch(job.memory.device(), work, parts_of(mesh.elements, CfdStage::threads));
    }
    std::swap(gas, next);
  }
  // Each stage: neighbours, normals, two gases in, one out, the step. The first has one gas less,
  // and the volumes.
  const double numbers = stages * (4.0 + 12.0 + 3.0 * cfd_variables + 1.0) - cfd_variables + 1.0;
  const double updates = static_cast<double>(mesh.elements) * static_cast<double>(iterations);
  job.cost.bytes = sizeof(float) * numbers * updates;
  job.cost.operations = stages * 4.0 * 90.0 * updates;
  job.memory.wait();
  return gas;
}

void baseline(Job& job) {
  const HostArray<float> volumes = read_array<float>(job, 0);
  const HostArray<int> neighbours = read_array<int>(job, 1);
  const HostArray<float> normals = read_array<float>(job, 2);
  job.phases.end("read");
  const float* d_volumes = copy_in(job, volumes);
  const int* d_neighbours = copy_in(job, neighbours);
  const float* d_normals = copy_in(job, normals);
  job.phases.end("copy_in");
  const float* d_gas = flow(job, d_volumes, d_neighbours, d_normals);
  job.phases.end("kernels");
  const HostArray<float> gas = copy_out(job, d_gas, cfd_variables * volumes.count());
  job.phases.end("copy_out");
  write_array(job, gas);
  job.phases.end("write");
}

void run(Job& job) {
  const auto* d_volumes = send<float>(job, 0);
  const auto* d_neighbours = send<int>(job, 1);
  const auto* d_normals = send<float>(job, 2);
  job.phases.end("send");
  float* d_gas = flow(job, d_volumes, d_neighbours, d_normals);
  job.phases.end("kernels");
  recv(job, d_gas, cfd_variables * cfd_elements(job.in.numbers()));
  job.phases.end("recv");
}

}  // namespace

int main(int argc, char** argv) {
  return paper_main(argc,
                    argv,
                    {cfd_format(),
                     "gas that flows around walls, by the Euler equations",
                     cfd_output_bytes,
                     generate,
                     run,
                     baseline,
                     cfd_check});
}
