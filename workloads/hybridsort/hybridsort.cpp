// The program: floats in, four passes, floats in order out.
#include "workloads/hybridsort/hybridsort.hpp"

#include "workloads/papers/launch.hpp"
#include "workloads/papers/movement.hpp"

#include <utility>

namespace {

constexpr unsigned passes = 4;

void generate(const Numbers& /*numbers*/, const RandomField& random, const InputWriter& writer) {
  writer.fill<float>(0, [&](std::uint64_t i) { return 2000.0F * random.unit(0, i) - 1000.0F; });
}

// Sorts in place: after an even number of passes the keys are where they were.
void sort(Job& job, unsigned* keys) {
  const std::size_t count = job.in.numbers().at("keys");
  const Device& device = job.memory.device();
  const std::size_t tiles = parts_of(count, sort_tile);
  const std::size_t counters = tiles * sort_buckets;
  const std::size_t pieces = parts_of(counters, sort_tile);
  auto* other = job.memory.allocate<unsigned>(count);
  auto* counts = job.memory.allocate<unsigned>(counters);
  auto* sums = job.memory.allocate<unsigned>(pieces);
  for (unsigned i = 0; i < passes; ++i) {
    const SortPass pass{keys, other, count, 8 * i, i == 0, i + 1 == passes};
    launch(device, SortCount{pass, counts}, tiles);
    launch(device, SortSumPieces{counts, counters, sums}, pieces);
    launch(device, SortSumAll{{sums, pieces, nullptr}}, 1);
    launch(device, SortScatter{pass, counts, sums}, tiles);
    std::swap(keys, other);
  }
  // A pass reads keys twice and writes them once, and the counters four times between them.
  job.cost.bytes = passes * sizeof(unsigned) *
                   (3.0 * static_cast<double>(count) + 4.0 * static_cast<double>(counters));
  job.memory.wait();
}

void baseline(Job& job) {
  const HostArray<unsigned> keys = read_array<unsigned>(job, 0);
  job.phases.end("read");
  unsigned* d_keys = copy_in(job, keys);
  job.phases.end("copy_in");
  sort(job, d_keys);
  job.phases.end("kernels");
  const HostArray<unsigned> result = copy_out(job, d_keys, keys.count());
  job.phases.end("copy_out");
  write_array(job, result);
  job.phases.end("write");
}

void run(Job& job) {
  auto* d_keys = send<unsigned>(job, 0);
  job.phases.end("send");
  sort(job, d_keys);
  job.phases.end("kernels");
  recv(job, d_keys, job.in.numbers().at("keys"));
  job.phases.end("recv");
}

}  // namespace

int main(int argc, char** argv) {
  return paper_main(argc,
                    argv,
                    {hybridsort_format(),
                     "floats in order",
                     hybridsort_output_bytes,
                     generate,
                     run,
                     baseline,
                     hybridsort_check});
}
