// The best that can be written by hand without hippogriff, the papers' "NVMe-pipeline": threads
// with two pinned slots each read a piece while the last one is copied, past the page cache where
// the file is not in it; and back likewise.
#pragma once

#include "workloads/papers/copies.hpp"
#include "workloads/papers/movement.hpp"

#include <atomic>
#include <memory>

struct PipelineShape {
  unsigned threads = 12;  // at most
  std::size_t piece_bytes = std::size_t{4} << 20U;
};

class Pipeline final : public Movement {
 public:
  // `largest_bytes`: of what is to be moved in one go; pinned memory is made for that, when the
  // first of it is moved.
  Pipeline(Workspace& memory, PipelineShape shape, std::size_t largest_bytes);

  void* send(const File& in, const Section& part) override;
  void recv(const File& out, void* memory, std::size_t size_bytes) override;
  [[nodiscard]] std::string report() const override;

 private:
  class Pieces;
  class Hand;

  void work(Pieces& pieces, const File& buffered, const File* direct, bool sends);
  [[nodiscard]] unsigned threads_for(std::size_t size_bytes) const;
  [[nodiscard]] std::size_t piece_for(std::size_t size_bytes) const;

  Workspace& memory_;
  PipelineShape shape_;
  std::size_t largest_bytes_;
  int gpu_;
  std::unique_ptr<PinnedMemory> pinned_;
  unsigned direct_moves_ = 0;
  unsigned buffered_moves_ = 0;
};
