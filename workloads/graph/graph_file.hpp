// Graphs in files: a page with the numbers, 64-bit offsets, 32-bit neighbours (CSR).
#pragma once

#include "workloads/graph/csr.hpp"
#include "workloads/papers/file.hpp"

#include <cstdint>
#include <string>
#include <vector>

inline constexpr std::size_t offsets_section = 0;
inline constexpr std::size_t neighbours_section = 1;

Format graph_format();

// A graph to be written: neighbours and offsets to their places, in any order, then the rest.
class GraphWriter {
 public:
  GraphWriter(const std::string& path, std::uint64_t vertices);

  [[nodiscard]] const File& file() const { return file_.file(); }

  // Offsets in the file.
  [[nodiscard]] std::uint64_t place_of_offsets() const;
  [[nodiscard]] std::uint64_t place_of_neighbour(std::uint64_t number) const;

  // The file ends with its neighbours, says how many there are, is on the drive, and stays.
  void finish(std::uint64_t edges);

 private:
  NewFile file_;
  Numbers numbers_;
  std::vector<Section> sections_;
};

// An open graph, its offsets read and checked: they begin with 0, do not fall, and end with the
// number of edges; throws std::runtime_error otherwise. Neighbours are not looked at.
class GraphFile {
 public:
  explicit GraphFile(const std::string& path);

  [[nodiscard]] const File& file() const { return in_.file(); }

  [[nodiscard]] const Section& neighbours() const { return in_.section(neighbours_section); }

  [[nodiscard]] const std::vector<std::uint64_t>& offsets() const { return offsets_; }

  [[nodiscard]] std::uint64_t vertices() const { return offsets_.size() - 1; }

  [[nodiscard]] std::uint64_t edges() const { return offsets_.back(); }

  [[nodiscard]] std::uint64_t degree(std::uint64_t vertex) const {
    return offsets_[vertex + 1] - offsets_[vertex];
  }

 private:
  Input in_;
  std::vector<std::uint64_t> offsets_;
};
