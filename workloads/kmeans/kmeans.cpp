// The program: points in, iterations, clusters and centres out.
#include "workloads/kmeans/kmeans.hpp"

#include "workloads/papers/launch.hpp"
#include "workloads/papers/movement.hpp"

#include <algorithm>

namespace {

// Clouds around as many places as there are clusters, wide enough to touch.
void generate(const Numbers& numbers, const RandomField& random, const InputWriter& writer) {
  const std::uint64_t features = numbers.at("features");
  const std::uint64_t clusters = numbers.at("clusters");
  writer.fill<float>(0, [&](std::uint64_t i) {
    const std::uint64_t cloud = random.bits(0, i / features) % clusters;
    const float place = 10.0F * random.unit(1, cloud * features + i % features);
    return place + 8.0F * (random.unit(2, i) - random.unit(3, i));
  });
}

KmeansShape shape_of(const Numbers& numbers) {
  return {numbers.at("points"),
          static_cast<unsigned>(numbers.at("features")),
          static_cast<unsigned>(numbers.at("clusters"))};
}

void copy_first_centres(const Job& job, const KmeansShape& shape, const float* points, float* to) {
  std::vector<float> centres(shape.values());
  Device& device = job.memory.device();
  for (unsigned c = 0; c < shape.clusters; ++c) {
    device.copy_out(centres.data() + std::size_t{c} * shape.features,
                    points + kmeans_first_point(job.in.numbers(), c) * shape.features,
                    shape.features * sizeof(float));
  }
  device.copy_in(to, centres.data(), centres.size() * sizeof(float));
}

// Makes the iterations; where the result is, as it goes into the file.
char* find_clusters(Job& job, const float* points) {
  const KmeansShape shape = shape_of(job.in.numbers());
  const std::uint64_t iterations = job.in.numbers().at("iterations");
  char* result = job.memory.allocate<char>(kmeans_output_bytes(job.in.numbers()));
  auto* members = reinterpret_cast<int*>(result);
  auto* centres = reinterpret_cast<float*>(members + shape.points);
  float* means = centres + shape.values();
  auto* totals = job.memory.allocate<KmeansTotals>(1);
  const std::size_t blocks =
      std::min(parts_of(shape.points, KmeansJoin::threads), KmeansJoin::blocks_max);
  auto* sums = job.memory.allocate<float>(blocks * shape.values());
  copy_first_centres(job, shape, points, centres);
  std::vector<float> next(shape.values());
  for (std::uint64_t i = 0; i < iterations; ++i) {
    job.memory.put(totals, KmeansTotals{});
    const KmeansJoin join{shape, points, centres, members, i > 0, sums, totals, blocks};
    launch(job.memory.device(), join, blocks);
    const KmeansMeans mean{shape, sums, blocks, totals, centres, means};
    launch(job.memory.device(), mean, parts_of(shape.values(), KmeansMeans::values_a_block));
    const auto points_now = static_cast<double>(shape.points);
    job.cost.bytes += points_now * sizeof(float) * (shape.features + 1.0);
    job.cost.operations += 3.0 * points_now * shape.values();
    if (job.memory.get(totals).changed == 0 || i + 1 == iterations) {
      break;
    }
    job.memory.device().copy_out(next.data(), means, next.size() * sizeof(float));
    job.memory.device().copy_in(centres, next.data(), next.size() * sizeof(float));
  }
  job.memory.wait();
  return result;
}

void baseline(Job& job) {
  const HostArray<float> points = read_array<float>(job, 0);
  job.phases.end("read");
  const float* d_points = copy_in(job, points);
  job.phases.end("copy_in");
  const char* d_result = find_clusters(job, d_points);
  job.phases.end("kernels");
  const HostArray<char> result = copy_out(job, d_result, kmeans_output_bytes(job.in.numbers()));
  job.phases.end("copy_out");
  write_array(job, result);
  job.phases.end("write");
}

void run(Job& job) {
  const auto* d_points = send<float>(job, 0);
  job.phases.end("send");
  char* d_result = find_clusters(job, d_points);
  job.phases.end("kernels");
  recv(job, d_result, kmeans_output_bytes(job.in.numbers()));
  job.phases.end("recv");
}

}  // namespace

int main(int argc, char** argv) {
  return paper_main(argc,
                    argv,
                    {kmeans_format(),
                     "points in clusters, by Lloyd's iterations",
                     kmeans_output_bytes,
                     generate,
                     run,
                     baseline,
                     kmeans_check});
}
