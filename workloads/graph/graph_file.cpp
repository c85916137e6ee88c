// How a graph file is written, and what it must be before anybody believes it.
#include "workloads/graph/graph_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace {

std::vector<std::uint64_t> array_bytes(const Numbers& numbers) {
  return {(numbers.at("vertices") + 1) * sizeof(std::uint64_t),
          numbers.at("edges") * sizeof(Vertex)};
}

}  // namespace

Format graph_format() {
  return {"graph",
          {{"vertices", 1, 1, std::uint64_t{1} << 31U, "from 0 on"},
           {"edges", 0, 0, std::uint64_t{1} << 40U, "both directions count"}},
          array_bytes};
}

GraphWriter::GraphWriter(const std::string& path, std::uint64_t vertices)
    : file_(path, O_RDWR), numbers_(graph_format().numbers) {
  numbers_.set("vertices", vertices);
  sections_ = sections_of(graph_format(), numbers_);
}

std::uint64_t GraphWriter::place_of_offsets() const {
  return sections_[offsets_section].offset_bytes;
}

std::uint64_t GraphWriter::place_of_neighbour(std::uint64_t number) const {
  return sections_[neighbours_section].offset_bytes + number * sizeof(Vertex);
}

void GraphWriter::finish(std::uint64_t edges) {
  numbers_.set("edges", edges);
  const std::uint64_t end = place_of_neighbour(edges);
  if (ftruncate(file().fd(), static_cast<off_t>(end)) != 0) {
    throw std::system_error(errno, std::generic_category(), "ftruncate " + file().path());
  }
  write_header(file(), graph_format(), numbers_);
  file().sync();
  file_.keep();
}

GraphFile::GraphFile(const std::string& path)
    : in_(path, graph_format()),
      offsets_(in_.elements<std::uint64_t>(offsets_section, 0, in_.numbers().at("vertices") + 1)) {
  const auto damaged = [&](const std::string& why) {
    throw std::runtime_error(path + " is damaged: " + why);
  };
  if (offsets_.front() != 0) {
    damaged("its first offset is " + std::to_string(offsets_.front()) + ", not 0");
  }
  for (std::size_t i = 1; i < offsets_.size(); ++i) {
    if (offsets_[i] < offsets_[i - 1]) {
      damaged("offset " + std::to_string(i) + " is less than the one before");
    }
  }
  if (offsets_.back() != in_.numbers().at("edges")) {
    damaged("its last offset is " + std::to_string(offsets_.back()) + ", its edges are " +
            std::to_string(in_.numbers().at("edges")));
  }
}
