// The host's side of warp.hpp: items go to the threads of all cores, lines are asked for ahead.
#pragma once

#include "workloads/arrays/warp.hpp"
#include "workloads/sharing/device.hpp"

#include <hippogriff/array/prefetch.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

// Asks for the lines of the items' ranges, as many at once as do not push each other out of the
// cache, and waits for them. Returns the first item that it did nothing for. The thread holds no
// line.
template <typename T, typename RangeOf>
std::uint64_t read_ahead(const hippogriff::array_view<T>& view,
                         unsigned threads,
                         Range items,
                         const RangeOf& range_of) {
  const hippogriff::ondemand::Cache& cache = view.cache();
  const std::uint64_t window = hippogriff::ondemand::prefetch_window(cache, threads);
  if (window < 2) {
    return items.end;
  }
  hippogriff::ondemand::Prefetch prefetch(cache);
  std::uint64_t asked = 0;
  std::uint64_t item = items.begin;
  for (; item < items.end && asked < window; ++item) {
    const Range range = range_of(item);
    if (range.begin >= range.end) {
      continue;
    }
    const std::uint64_t first = range.begin * sizeof(T) >> cache.line_shift;
    const std::uint64_t last = (range.end * sizeof(T) - 1) >> cache.line_shift;
    if (asked != 0 && asked + (last - first + 1) > window) {
      break;
    }
    for (std::uint64_t line = first; line <= last && asked < window; ++line, ++asked) {
      prefetch.ask(line);
    }
  }
  return item;
}

template <typename T, typename RangeOf>
std::uint64_t read_ahead(const PlainData<T>& /*data*/,
                         unsigned /*threads*/,
                         Range items,
                         const RangeOf& /*range_of*/) {
  return items.end;
}

#if !HIPPOGRIFF_HAS_CUDA
template <typename Work>
void on_gpu_warps(const Work& /*work*/, std::uint64_t /*items*/) {
  throw std::runtime_error("built without CUDA");
}
#endif

// Does items on the calling thread, one of so many, having their lines read ahead.
template <typename Work, typename Buffer>
void do_items(const Work& work, Buffer& buffer, Range items, unsigned threads) {
  while (items.begin < items.end) {
    std::uint64_t stop = items.end;
    if constexpr (requires { work.ahead(items.begin, items.end, threads); }) {
      stop = work.ahead(items.begin, items.end, threads);
    }
    for (; items.begin < stop; ++items.begin) {
      work(HostWarp{}, buffer, items.begin);
    }
  }
}

// Does all items on all cores and waits.
template <typename Work>
void on_host_warps(const Work& work, std::uint64_t items) {
  constexpr unsigned buffer_bytes = 4096;
  const std::uint64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const auto threads =
      static_cast<unsigned>(std::clamp<std::uint64_t>(parts_of(items, Work::at_once), 1, cores));
  std::atomic<std::uint64_t> next = 0;
  const auto take_items = [&] {
    const auto buffer = std::make_unique<typename Work::template Buffer<buffer_bytes>>();
    for (std::uint64_t first = next.fetch_add(Work::at_once); first < items;
         first = next.fetch_add(Work::at_once)) {
      do_items(
          work, *buffer, {first, std::min<std::uint64_t>(first + Work::at_once, items)}, threads);
    }
  };
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < threads; ++i) {
    others.emplace_back(take_items);
  }
  take_items();
}

// Has the device do all items; a GPU's are on its default stream then, device host's are done.
template <typename Work>
void start_warps(const Device& device, const Work& work, std::uint64_t items) {
  if (items == 0) {
    return;
  }
  if (device.is_gpu()) {
    on_gpu_warps(work, items);
  } else {
    on_host_warps(work, items);
  }
}

// Does all items on the device and waits.
template <typename Work>
void run_warps(const Device& device, const Work& work, std::uint64_t items) {
  start_warps(device, work, items);
  if (items != 0 && device.is_gpu()) {
    wait_for_gpu();
  }
}

template <typename Do>
void start_for_all(const Device& device, const Do& act, std::uint64_t count) {
  const ForAll<Do> work{act, count};
  start_warps(device, work, work.items());
}

template <typename Do>
void run_for_all(const Device& device, const Do& act, std::uint64_t count) {
  const ForAll<Do> work{act, count};
  run_warps(device, work, work.items());
}
