// The files that programs read: what is no input is refused with an error of its own, and what is
// taken lies within the file and its bounds. The first byte says which format the others are in.
#include "workloads/graph/graph_file.hpp"
#include "workloads/risk/risk.hpp"
#include "workloads/sharing/fasta.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>

namespace {

constexpr std::uint32_t catalogue = 1000;

void expect(bool truth, const char* what) {
  if (!truth) {
    std::fprintf(stderr, "not so: %s\n", what);
    std::abort();
  }
}

// A file of memory, the same for all inputs.
int file_of(std::span<const std::uint8_t> bytes) {
  static const int fd = memfd_create("input", MFD_CLOEXEC);
  expect(fd >= 0 && ftruncate(fd, 0) == 0, "there is a file");
  expect(pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
         "the file takes the input");
  return fd;
}

void read_graph(int fd, std::size_t size_bytes) {
  const GraphFile graph("/proc/self/fd/" + std::to_string(fd));
  const Section& neighbours = graph.neighbours();
  expect(neighbours.offset_bytes + neighbours.size_bytes == size_bytes, "the file ends with them");
  expect(neighbours.size_bytes == graph.edges() * sizeof(Vertex), "edges are there");
  expect(std::is_sorted(graph.offsets().begin(), graph.offsets().end()), "offsets ascend");
  expect(graph.file().size_bytes() == size_bytes, "it is the file");
}

ScratchFile stream_of(int fd) {
  ScratchFile file(fdopen(dup(fd), "r"));
  expect(file != nullptr && std::fseek(file.get(), 0, SEEK_SET) == 0, "the file can be read");
  return file;
}

void read_sequences(int fd, std::size_t size_bytes) {
  const ScratchFile file = stream_of(fd);
  FastaReader reader(file.get());
  std::size_t letters = 0;
  while (true) {
    const auto records = reader.read(3);
    if (records.empty()) {
      break;
    }
    for (const FastaRecord& record : records) {
      expect(record.name.find('\n') == std::string::npos, "names are of one line");
      expect(record.letters.find('\n') == std::string::npos, "letters are no lines");
      letters += record.name.size() + record.letters.size();
    }
  }
  expect(letters <= size_bytes, "nothing is made up");
}

void read_years(int fd) {
  const ScratchFile file = stream_of(fd);
  const Trials trials = read_trials(file.get(), catalogue);
  expect(trials.first_event.front() == 0, "the first begins at 0");
  expect(trials.first_event.back() == trials.events.size(), "the last ends with the events");
  expect(std::is_sorted(trials.first_event.begin(), trials.first_event.end()), "they ascend");
  expect(std::all_of(trials.events.begin(),
                     trials.events.end(),
                     [](std::uint32_t event) { return event < catalogue; }),
         "events are of the catalogue");
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const int fd = file_of({data + 1, size - 1});
  try {
    switch (data[0] % 3) {
      case 0:
        read_graph(fd, size - 1);
        break;
      case 1:
        read_sequences(fd, size - 1);
        break;
      default:
        read_years(fd);
    }
  } catch (const std::runtime_error& error) {
    expect(*error.what() != '\0', "an error says what it is");
  }
  return 0;
}
