// The program: an image in, levels, planes of coefficients out.
#include "workloads/dwt2d/dwt2d.hpp"

#include "workloads/papers/launch.hpp"
#include "workloads/papers/movement.hpp"

#include <utility>

namespace {

// Slopes with some noise.
void generate(const Numbers& numbers, const RandomField& random, const InputWriter& writer) {
  const std::uint64_t width = numbers.at("width");
  writer.fill<unsigned char>(0, [&](std::uint64_t i) {
    const std::uint64_t pixel = i / dwt_colours;
    const std::uint64_t slope = pixel % width / 8 + pixel / width / (2 + i % dwt_colours);
    return static_cast<unsigned char>(slope + random.bits(0, i) % 24);
  });
}

template <typename Rule>
short* transform_by(Job& job, const unsigned char* pixels) {
  const Numbers& numbers = job.in.numbers();
  std::size_t width = numbers.at("width");
  std::size_t height = dwt2d_height(numbers);
  const std::uint64_t levels = numbers.at("levels");
  const Device& device = job.memory.device();
  auto* result = job.memory.allocate<short>(dwt_colours * width * height);
  const DwtTarget target{result, width, height};
  // Two buffers of low frequencies, which levels read and write in turns.
  DwtTarget next{nullptr, (width + 1) / 2, (height + 1) / 2};
  DwtTarget last = next;
  next.cells = job.memory.allocate<short>(dwt_colours * next.width * next.height);
  last.cells = job.memory.allocate<short>(dwt_colours * next.width * next.height);
  for (std::uint64_t level = 0; level < levels; ++level) {
    next.width = (width + 1) / 2;
    next.height = (height + 1) / 2;
    const DwtTarget& low = level + 1 == levels ? target : next;
    if (level == 0) {
      const DwtLevel<DwtPixels, Rule> work{{pixels, width}, width, height, low, target};
      launch(device, work, work.blocks());
    } else {
      const DwtLevel<DwtPlanes, Rule> work{
          {last.cells, last.width, last.height}, width, height, low, target};
      launch(device, work, work.blocks());
    }
    const std::size_t bytes = level == 0 ? 1 + sizeof(short) : 2 * sizeof(short);
    job.cost.bytes += static_cast<double>(dwt_colours * width * height * bytes);
    width = next.width;
    height = next.height;
    std::swap(next, last);
  }
  job.memory.wait();
  return result;
}

short* transform(Job& job, const unsigned char* pixels) {
  return job.in.numbers().at("rodinia") == 1 ? transform_by<DwtTowardsZero>(job, pixels)
                                             : transform_by<DwtDownwards>(job, pixels);
}

void baseline(Job& job) {
  const HostArray<unsigned char> pixels = read_array<unsigned char>(job, 0);
  job.phases.end("read");
  const unsigned char* d_pixels = copy_in(job, pixels);
  job.phases.end("copy_in");
  const short* d_result = transform(job, d_pixels);
  job.phases.end("kernels");
  const HostArray<short> result = copy_out(job, d_result, pixels.count());
  job.phases.end("copy_out");
  write_array(job, result);
  job.phases.end("write");
}

void run(Job& job) {
  const auto* d_pixels = send<unsigned char>(job, 0);
  job.phases.end("send");
  short* d_result = transform(job, d_pixels);
  job.phases.end("kernels");
  recv(job, d_result, job.in.section(0).size_bytes);
  job.phases.end("recv");
}

}  // namespace

int main(int argc, char** argv) {
  return paper_main(argc,
                    argv,
                    {dwt2d_format(),
                     "wavelets of an image",
                     dwt2d_output_bytes,
                     generate,
                     run,
                     baseline,
                     dwt2d_check});
}
