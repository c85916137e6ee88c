// Kernels over arrays in storage, written once: work for warps, which on device host are threads.
#pragma once

#include "workloads/papers/block.hpp"

#include <hippogriff/array/view.hpp>

#include <cstdint>
#include <type_traits>

#ifndef __CUDACC__
#include <atomic>
#endif

// A kernel is a struct, its arguments are the members:
//
//   struct Work {
//     static constexpr unsigned at_once = 32;  // items that a thread of device host takes
//     template <unsigned Bytes>
//     using Buffer = ...;  // of a warp, about so many bytes; not initialised
//     template <typename Warp, typename Buffer>
//     HIPPO_DEVICE void operator()(const Warp& warp, Buffer& buffer, std::uint64_t item) const;
//     // Device host only, may be absent: has the lines of items from `first` on read, and tells
//     // which item is the first that it did nothing for (after `first`).
//     std::uint64_t ahead(std::uint64_t first, std::uint64_t end, unsigned threads) const;
//     // GPUs only, may be absent: for how many warps a multiprocessor has registers; else 16.
//     static constexpr unsigned warps_at_once = 24;
//     // GPUs only, may be absent: items are taken in order, by at most so many warps at once. Else
//     // they are taken by strides, by as many as fit.
//     std::uint64_t in_order_by() const;
//   };
//
// All lanes of a warp come with the same item. Where they meet (Warp's functions, walk, each_lane)
// all of them must.

// A warp of device host: one lane.
struct HostWarp {
  static constexpr unsigned lanes = 1;

  [[nodiscard]] static unsigned rank() { return 0; }

  [[nodiscard]] static hippogriff::ondemand::Alone group() { return {}; }

  static void meet() {}

  template <typename T>
  [[nodiscard]] static T sum(T value) {
    return value;
  }

  [[nodiscard]] static bool any(bool mine) { return mine; }

  // Which lanes say yes, a bit each.
  [[nodiscard]] static unsigned vote(bool mine) { return mine ? 1 : 0; }

  // That lane's, for all lanes.
  template <typename T>
  [[nodiscard]] static T from(unsigned /*lane*/, T value) {
    return value;
  }

  // Adds the sum of what the lanes bring; each gets where its own begin.
  template <typename Counter>
  [[nodiscard]] static Counter reserve(Counter& counter, unsigned count) {
    return count == 0 ? 0 : fetch_add(counter, static_cast<Counter>(count));
  }
};

// Data that is in memory, all of it or a part: the device's, or host memory that the device reads.
template <typename T>
struct PlainData {
  const T* data = nullptr;
  std::uint64_t count = 0;
  std::uint64_t first = 0;  // the number of the first one that is there

  [[nodiscard]] HIPPO_HOST_DEVICE std::uint64_t size() const { return count; }

  HIPPO_DEVICE T operator[](std::uint64_t index) const { return data[index - first]; }
};

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Where a warp has what it read of an array.
template <typename T, unsigned Bytes>
struct Window {
  static constexpr unsigned count = Bytes / sizeof(T);
  static constexpr unsigned aligned = sizeof(T) < 8 ? 8 / sizeof(T) : 1;  // copied by eight bytes
  alignas(16) T values[count];
};

// An act that returns nothing goes on.
template <typename Act, typename... Arguments>
HIPPO_DEVICE bool goes_on(const Act& act, const Arguments&... arguments) {
  if constexpr (std::is_void_v<decltype(act(arguments...))>) {
    act(arguments...);
    return true;
  } else {
    return act(arguments...);
  }
}

// Calls act(first, values, count) for the elements of `range`, part by part; where act returns
// false it was the last time. False when elements cannot be had; then the array knows why.
template <typename Warp, typename T, unsigned Bytes, typename Act>
HIPPO_DEVICE bool walk(const Warp& warp,
                       const hippogriff::array_view<T>& from,
                       Window<T, Bytes>& window,
                       Range range,
                       const Act& act) {
  constexpr std::uint64_t at_most = Window<T, Bytes>::count;
  constexpr std::uint64_t aligned = Window<T, Bytes>::aligned;
  while (range.begin < range.end) {
    const std::uint64_t first = range.begin / aligned * aligned;
    const std::uint64_t stop = smaller((range.begin / at_most + 1) * at_most, range.end);
    const auto last = smaller<std::uint64_t>((stop + aligned - 1) / aligned * aligned, from.size());
    warp.meet();  // all are through with what is in the window
    if (from.read_range(warp.group(), first, last - first, window.values) !=
        hippogriff::array_view<T>::status::success) {
      return false;
    }
    if (!goes_on(act, range.begin, window.values + (range.begin - first), stop - range.begin)) {
      return true;
    }
    range.begin = stop;
  }
  return true;
}

template <typename Warp, typename T, unsigned Bytes, typename Act>
HIPPO_DEVICE bool walk(const Warp& /*warp*/,
                       const PlainData<T>& from,
                       Window<T, Bytes>& /*window*/,
                       Range range,
                       const Act& act) {
  act(range.begin, from.data + (range.begin - from.first), range.end - range.begin);
  return true;
}

// Shares out values among the lanes: act(value, index, valid), as often for each of them. Lane 0
// begins where a multiple of the warp would, so that memory is read by whole sectors.
template <typename Warp, typename T, typename Act>
HIPPO_DEVICE void each_lane(
    const Warp& warp, std::uint64_t first, const T* values, std::uint64_t count, const Act& act) {
  const std::uint64_t skew = first % Warp::lanes;
  for (std::uint64_t i = 0; i < count + skew; i += Warp::lanes) {
    const std::uint64_t at = i + warp.rank();
    const bool valid = at >= skew && at - skew < count;
    act(valid ? values[at - skew] : T{}, first + at - skew, valid);
  }
}

// --- words that others may be changing ---

// Makes it the smaller of the two.
HIPPO_DEVICE inline void lower(unsigned& target, unsigned value) {
#ifdef __CUDACC__
  atomicMin(&target, value);
#else
  const std::atomic_ref<unsigned> word(target);
  unsigned seen = word.load(std::memory_order_relaxed);
  while (value < seen && !word.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
#endif
}

HIPPO_DEVICE inline unsigned peek(const unsigned& value) {
#ifdef __CUDACC__
  return *const_cast<const volatile unsigned*>(&value);
#else
  return __atomic_load_n(&value, __ATOMIC_RELAXED);
#endif
}

HIPPO_DEVICE inline void add_to(double& target, double value) {
#ifdef __CUDACC__
  atomicAdd(&target, value);
#else
  const std::atomic_ref<double> word(target);
  double seen = word.load(std::memory_order_relaxed);
  while (!word.compare_exchange_weak(seen, seen + value, std::memory_order_relaxed)) {
  }
#endif
}

// --- what a kernel does for each of many things, which needs no array ---

// Of a struct whose operator()(i) does the i-th.
template <typename Do>
struct ForAll {
  static constexpr unsigned at_once = 16;
  static constexpr std::uint64_t an_item = 1024;

  template <unsigned Bytes>
  using Buffer = NothingShared;

  Do act;
  std::uint64_t count;

  [[nodiscard]] std::uint64_t items() const { return parts_of(count, an_item); }

  template <typename Warp, typename Buffer>
  HIPPO_DEVICE void operator()(const Warp& warp, Buffer& /*buffer*/, std::uint64_t item) const {
    const auto last = smaller<std::uint64_t>((item + 1) * an_item, count);
    for (std::uint64_t i = item * an_item + warp.rank(); i < last; i += Warp::lanes) {
      act(i);
    }
  }
};

// Puts the items on the current GPU's default stream, does not wait. A program's .cu instantiates
// it for its kernels (warp_launch.cuh has the body). Throws std::runtime_error.
template <typename Work>
void on_gpu_warps(const Work& work, std::uint64_t items);
