// The kernels of `vectoradd`: C = A + B through arrays in storage, or in device memory.
#pragma once

#include "workloads/arrays/warp.hpp"

#include <hippogriff/array.hpp>

#ifndef __CUDACC__
#include "workloads/arrays/warp_launch.hpp"
#endif

using Number = std::uint64_t;

// What a warp has of A and of B at a time, at most.
inline constexpr unsigned part_bytes_max = 4096;

// A warp fills a line of C: lines that are written as a whole are never read.
struct AddThroughArrays {
  static constexpr unsigned at_once = 16;

  struct Two {
    alignas(16) Number a[part_bytes_max / sizeof(Number)];
    alignas(16) Number b[part_bytes_max / sizeof(Number)];
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
    static_cast<void>(
        c.fill_range(warp.group(),
                     range.begin,
                     range.end - range.begin,
                     [&](std::uint64_t first, std::uint64_t count, Number* sums) {
                       for (std::uint64_t done = 0; done < count; done += part_numbers) {
                         const std::uint64_t some = smaller(count - done, part_numbers);
                         add(warp, buffer, {first + done, first + done + some}, sums + done);
                       }
                     }));
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
  static constexpr std::uint64_t part_numbers = part_bytes_max / sizeof(Number);

  template <typename Warp>
  HIPPO_DEVICE static bool has_read(const Warp& warp,
                                    const hippogriff::array_view<Number>& from,
                                    Range range,
                                    Number* to) {
    return from.read_range(warp.group(), range.begin, range.end - range.begin, to) ==
           hippogriff::array_view<Number>::status::success;
  }

  template <typename Warp>
  HIPPO_DEVICE void add(const Warp& warp, Two& buffer, Range range, Number* sums) const {
    const std::uint64_t count = range.end - range.begin;
    const bool have = has_read(warp, a, range, buffer.a) && has_read(warp, b, range, buffer.b);
    for (std::uint64_t i = warp.rank(); i < count; i += Warp::lanes) {
      sums[i] = have ? buffer.a[i] + buffer.b[i] : 0;
    }
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
