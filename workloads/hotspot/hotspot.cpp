// The program: temperatures and powers in, kernels, temperatures out.
#include "workloads/hotspot/hotspot.hpp"

#include "workloads/papers/launch.hpp"
#include "workloads/papers/movement.hpp"

#include <algorithm>
#include <utility>

namespace {

// Between 323 and 343 K, and powers of up to 3 MW/m^2.
void generate(const Numbers& numbers, const RandomField& random, const InputWriter& writer) {
  const auto cell_metres = static_cast<float>(hotspot_cell_metres(numbers));
  const float watts_max = 3e6F * cell_metres * cell_metres;
  writer.fill<float>(0, [&](std::uint64_t i) { return 323.0F + 20.0F * random.unit(0, i); });
  writer.fill<float>(1, [&](std::uint64_t i) { return watts_max * random.unit(1, i); });
}

// Makes all steps; where the result is.
float* spread_heat(Job& job, float* temperature, const float* power) {
  const std::size_t rows = job.in.numbers().at("rows");
  const std::uint64_t steps = job.in.numbers().at("steps");
  const HotspotPhysics physics = hotspot_physics(job.in.numbers());
  auto* other = job.memory.allocate<float>(rows * rows);
  for (std::uint64_t done = 0; done < steps; done += HotspotSteps::steps_max) {
    const auto now = std::min<std::uint64_t>(steps - done, HotspotSteps::steps_max);
    const HotspotSteps work{temperature, power, other, rows, static_cast<unsigned>(now), physics};
    launch(job.memory.device(), work, work.blocks());
    job.cost.bytes += 3.0 * sizeof(float) * static_cast<double>(rows * rows);
    std::swap(temperature, other);
  }
  job.memory.wait();
  return temperature;
}

void baseline(Job& job) {
  const HostArray<float> temperature = read_array<float>(job, 0);
  const HostArray<float> power = read_array<float>(job, 1);
  job.phases.end("read");
  float* d_temperature = copy_in(job, temperature);
  const float* d_power = copy_in(job, power);
  job.phases.end("copy_in");
  const float* d_result = spread_heat(job, d_temperature, d_power);
  job.phases.end("kernels");
  const HostArray<float> result = copy_out(job, d_result, temperature.count());
  job.phases.end("copy_out");
  write_array(job, result);
  job.phases.end("write");
}

void run(Job& job) {
  auto* d_temperature = send<float>(job, 0);
  const auto* d_power = send<float>(job, 1);
  job.phases.end("send");
  float* d_result = spread_heat(job, d_temperature, d_power);
  job.phases.end("kernels");
  recv(job, d_result, job.in.section(0).size_bytes / sizeof(float));
  job.phases.end("recv");
}

}  // namespace

int main(int argc, char** argv) {
  return paper_main(argc,
                    argv,
                    {hotspot_format(),
                     "heat that spreads on a chip",
                     hotspot_output_bytes,
                     generate,
                     run,
                     baseline,
                     hotspot_check});
}
