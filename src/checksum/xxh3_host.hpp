// XXH3 on the CPU, by the xxHash library: 64 bits, seed 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hippogriff {

// Of any memory, by the widest instructions that this processor has.
std::uint64_t xxh3_of(const void* data, std::size_t size_bytes) noexcept;

// Of memory that comes in pieces. Not thread-safe.
class Xxh3Stream {
 public:
  // Throws std::bad_alloc.
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;

  void reset() noexcept;
  void update(const void* data, std::size_t size_bytes) noexcept;
  [[nodiscard]] std::uint64_t digest() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hippogriff
