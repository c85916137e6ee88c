// The program: places in, the nearest of them out.
#include "workloads/nn/nn.hpp"

#include "workloads/papers/launch.hpp"
#include "workloads/papers/movement.hpp"

#include <algorithm>

namespace {

// Anywhere north of the equator.
void generate(const Numbers& /*numbers*/, const RandomField& random, const InputWriter& writer) {
  writer.fill<NnPlace>(0, [&](std::uint64_t i) {
    return NnPlace{90.0F * random.unit(0, i), 360.0F * random.unit(1, i)};
  });
}

NnAnswer* find_nearest(Job& job, const NnPlace* places) {
  constexpr std::size_t blocks_max = 1024;
  const Numbers& numbers = job.in.numbers();
  const std::size_t count = numbers.at("records");
  const unsigned best = nn_found(numbers);
  const NnPlace from{static_cast<float>(numbers.at("latitude")),
                     static_cast<float>(numbers.at("longitude"))};
  const Device& device = job.memory.device();
  using FromPlaces = NnSmallest<NnPlaces>;
  const std::size_t blocks = std::min(parts_of(count, FromPlaces::keys_a_round), blocks_max);
  auto* keys = job.memory.allocate<NnKey>((blocks + 1) * best);
  auto* answers = job.memory.allocate<NnAnswer>(best);
  launch(device, FromPlaces{{places, from}, count, best, blocks, keys}, blocks);
  NnKey* last = keys + blocks * best;
  launch(device, NnSmallest<NnKeys>{{keys}, blocks * best, best, 1, last}, 1);
  launch(device, NnAnswers{last, best, answers}, 1);
  job.cost.bytes = static_cast<double>(count) * sizeof(NnPlace);
  job.cost.operations = 5.0 * static_cast<double>(count);
  job.memory.wait();
  return answers;
}

void baseline(Job& job) {
  const HostArray<NnPlace> places = read_array<NnPlace>(job, 0);
  job.phases.end("read");
  const NnPlace* d_places = copy_in(job, places);
  job.phases.end("copy_in");
  const NnAnswer* d_answers = find_nearest(job, d_places);
  job.phases.end("kernels");
  const HostArray<NnAnswer> answers = copy_out(job, d_answers, nn_found(job.in.numbers()));
  job.phases.end("copy_out");
  write_array(job, answers);
  job.phases.end("write");
}

void run(Job& job) {
  const auto* d_places = send<NnPlace>(job, 0);
  job.phases.end("send");
  NnAnswer* d_answers = find_nearest(job, d_places);
  job.phases.end("kernels");
  recv(job, d_answers, nn_found(job.in.numbers()));
  job.phases.end("recv");
}

}  // namespace

int main(int argc, char** argv) {
  return paper_main(argc,
                    argv,
                    {nn_format(),
                     "the nearest of many places",
                     nn_output_bytes,
                     generate,
                     run,
                     baseline,
                     nn_check});
}
