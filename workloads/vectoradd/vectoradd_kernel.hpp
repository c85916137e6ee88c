// The kernels of `vectoradd`: C = A + B through arrays in storage, or in device memory.
#pragma once

#include "workloads/arrays/warp.hpp"

#include <hippogriff/array.hpp>

#ifndef __CUDACC__
#include "workloads/arrays/warp_launch.hpp"
#endif

using Number = std::uint64_t;

// What a warp adds at a time: a line of C, at most so many bytes. Then C's lines are written as a
// whole, and never read.
inline constexpr unsigned line_bytes_max = 16U << 10U;

struct AddThroughArrays {
  static constexpr unsigned at_once = 16;
  static constexpr std::uint64_t part_numbers = 512;  // of B, at a time

  struct Two {
    alignas(16) Number a[line_bytes_max / sizeof(Number)];  // and then their sums
    alignas(16) Number b[part_numbers];
  };

  template <unsigned Bytes>
  using Buffer = Two;

  hippogriff::array_view<Number> a;
  hippogriff::array_view<Number> b;
  hippogriff::array_view<Number> c;
  std::uint64_t numbers_a_line = 0;
  std::uint64_t warps = 0;  // of a GPU, at once

  [[nodiscard]] std::uint64_t items() const { return parts_of(c.size(), numbers_a_line); }

  [[nodiscard]] HIPPO_HOST_DEVICE Range line(std::uint64_t item) const {
    const std::uint64_t begin = item * numbers_a_line;
    const std::uint64_t end = begin + numbers_a_line;
    return {begin, end < c.size() ? end : c.size()};
  }

  // What cannot be read or written the arrays remember.
  template <typename Warp>
  HIPPO_DEVICE void operator()(const Warp& warp, Two& buffer, std::uint64_t item) const {
    const Range range = line(item);
    const std::uint64_t count = range.end - range.begin;
    bool has_all = has_read(warp, a, range, buffer.a);
    for (std::uint64_t done = 0; done < count && has_all; done += part_numbers) {
      const std::uint64_t some = smaller(count - done, part_numbers);
      has_all = has_read(warp, b, {range.begin + done, range.begin + done + some}, buffer.b);
      for (std::uint64_t i = warp.rank(); i < some; i += Warp::lanes) {
        buffer.a[done + i] += buffer.b[i];
      }
    }
    if (has_all) {
      static_cast<void>(c.write_range(warp.group(), range.begin, count, buffer.a));
    }
  }

  [[nodiscard]] std::uint64_t in_order_by() const { return warps; }

#ifndef __CUDACC__
  [[nodiscard]] std::uint64_t ahead(std::uint64_t first,
                                    std::uint64_t end,
                                    unsigned threads) const {
    const auto range_of = [&](std::uint64_t item) { return line(item); };
    return smaller(read_ahead(a, threads, {first, end}, range_of),
                   read_ahead(b, threads, {first, end}, range_of));
  }
#endif

 private:
  template <typename Warp>
  HIPPO_DEVICE static bool has_read(const Warp& warp,
                                    const hippogriff::array_view<Number>& from,
                                    Range range,
                                    Number* to) {
    return from.read_range(warp.group(), range.begin, range.end - range.begin, to) ==
           hippogriff::array_view<Number>::status::success;
  }
};

struct AddInMemory {
  const Number* a;
  const Number* b;
  Number* c;

  HIPPO_DEVICE void operator()(std::uint64_t i) const { c[i] = a[i] + b[i]; }
};

// Writes what a GPU's kernels wrote, and waits until the storage keeps it.
void flush_on_gpu(hippogriff::array<Number>& numbers);

#if !defined(__CUDACC__) && !HIPPOGRIFF_HAS_CUDA
inline void flush_on_gpu(hippogriff::array<Number>& /*numbers*/) {
  throw std::runtime_error("built without CUDA");
}
#endif
