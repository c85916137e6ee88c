// What array_gpu_test runs on a GPU: elements that say where they stand, and kernels that check
// them.
#pragma once

#include "array_check.cuh"

#include <hippogriff/array.cuh>

#include <cstdint>

namespace {

using hippogriff::array_cursor;
using hippogriff::array_view;
using hippogriff::ondemand::Lanes;
using hippogriff::ondemand::NvmeStatus;

struct Odd {  // 12 bytes: straddles lines
  std::uint32_t parts[3];

  __host__ __device__ static Odd of(std::uint64_t index) {
    const std::uint64_t bits = mixed(index);
    return {{static_cast<std::uint32_t>(bits),
             static_cast<std::uint32_t>(bits >> 32U),
             static_cast<std::uint32_t>(index)}};
  }

  __host__ __device__ bool operator==(const Odd& other) const {
    return parts[0] == other.parts[0] && parts[1] == other.parts[1] && parts[2] == other.parts[2];
  }
};

struct Word {
  std::uint64_t bits;

  __host__ __device__ static Word of(std::uint64_t index) { return {mixed(index + 99)}; }

  __host__ __device__ bool operator==(const Word& other) const { return bits == other.bits; }
};

__device__ std::uint64_t thread_number() {
  return static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ std::uint64_t thread_count() {
  return static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
}

// Every thread reads elements at random, in divergent flow.
template <typename T>
__global__ void read_random(array_view<T> view, int rounds, unsigned long long* wrong) {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t pick = mixed(thread_number() * 1000 + static_cast<std::uint64_t>(round));
    if (pick % 5 == 0) {
      continue;
    }
    const std::uint64_t index = (pick >> 8U) % view.size();
    if (!(view[index] == T::of(index))) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

// Has two numbers in one set, by a loop that each lane leaves when it is done.
__device__ void join(unsigned* parents, unsigned one, unsigned other) {
  auto* const seen = static_cast<volatile unsigned*>(parents);
  unsigned mine = seen[one];
  unsigned theirs = seen[other];
  while (mine != theirs) {
    const unsigned above = mine < theirs ? theirs : mine;
    const unsigned below = mine < theirs ? mine : theirs;
    const unsigned parent = seen[above];
    if (parent == below || (parent == above && atomicCAS(parents + above, above, below) == above)) {
      return;
    }
    mine = seen[seen[above]];
    theirs = seen[below];
  }
}

// Lanes part between accesses, each for as long as it takes, and all meet in the end: groups of
// lanes that happen to be together must not get in each other's way.
template <typename T>
__global__ void read_and_part(array_view<T> view, unsigned* parents, unsigned long long* wrong) {
  const std::uint64_t number = thread_number();
  const unsigned reads = mixed(number) % 3;
  for (unsigned read = 0; read < reads; ++read) {
    const std::uint64_t index = (number * 16 + read) % view.size();
    const T value = view[index];
    if (!(value == T::of(index))) {
      atomicAdd(wrong, 1ULL);
    }
    join(parents,
         static_cast<unsigned>(number),
         static_cast<unsigned>(mixed(index) % thread_count()));
  }
  if (__ballot_sync(~0U, 1) != ~0U) {
    atomicAdd(wrong, 1ULL);
  }
}

// Tiles of a warp side by side, some of them at the same line: one waits for what another has
// claimed.
template <typename T>
__global__ void read_by_tiles(array_view<T> view,
                              unsigned lanes,
                              int rounds,
                              unsigned long long* wrong) {
  constexpr std::uint64_t part = 16;
  __shared__ std::uint64_t memory[256][part * sizeof(T) / sizeof(std::uint64_t)];
  const unsigned lane = threadIdx.x % 32;
  const Lanes tile(((~0U >> (32 - lanes)) << (lane / lanes * lanes)));
  T* const mine = reinterpret_cast<T*>(memory[threadIdx.x / lanes]);
  for (int round = 0; round < rounds; ++round) {
    const auto number = static_cast<std::uint64_t>(round);
    const std::uint64_t together = mixed(thread_number() / 32 * 1000 + number);
    const std::uint64_t apart = mixed(thread_number() / lanes * 77 + number);
    const std::uint64_t first = (together % 4 == 0 ? apart : together) % (view.size() - part);
    const bool good = view.read_range(tile, first, part, mine) == NvmeStatus::success;
    tile.meet();
    for (std::uint64_t i = tile.rank(); i < part; i += tile.size()) {
      if (!good || !(mine[i] == T::of(first + i))) {
        atomicAdd(wrong, 1ULL);
      }
    }
    tile.meet();
  }
}

// Every thread writes its own elements: neighbours are other threads'.
template <typename T>
__global__ void write_own(array_view<T> view, std::uint64_t shift, unsigned long long* wrong) {
  for (std::uint64_t i = thread_number(); i < view.size(); i += thread_count()) {
    if (view.write(i, T::of(i + shift)) != NvmeStatus::success) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

// Every thread asks for elements and goes away; some ask by warps for ranges.
template <typename T>
__global__ void ask_and_go(array_view<T> view, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t pick = mixed(thread_number() * 77 + static_cast<std::uint64_t>(round));
    if (pick % 3 != 0) {
      view.prefetch((pick >> 8U) % view.size());
    }
    __syncwarp();
    view.prefetch_range(Lanes::warp(), thread_number() / 32 * 5000 % view.size(), 4000);
  }
}

// Every thread asks for three elements, drops one, and waits for the others in another order.
template <typename T>
__global__ void get_async(array_view<T> view, int rounds, unsigned long long* wrong) {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t pick = mixed(thread_number() * 991 + static_cast<std::uint64_t>(round));
    const auto first = view.get_async(pick % view.size());
    const auto second = view.get_async((pick >> 9U) % view.size());
    static_cast<void>(view.get_async((pick >> 18U) % view.size()));
    T value{};
    const bool good = second.value() == T::of(second.index()) &&
                      first.wait(value) == NvmeStatus::success && value == T::of(first.index());
    if (!good) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

// Every thread writes its own elements, asks for what it writes next, and reads again what it wrote
// a while ago: by then its line has been written to the file, or is being written.
template <typename T>
__global__ void write_and_read(array_view<T> view, std::uint64_t shift, unsigned long long* wrong) {
  for (std::uint64_t i = thread_number(); i < view.size(); i += thread_count()) {
    bool good = view.write(i, T::of(i + shift)) == NvmeStatus::success;
    view.prefetch(i + thread_count());
    if (i >= 2 * thread_count()) {
      const std::uint64_t before = i - 2 * thread_count();
      good = view[before] == T::of(before + shift) && good;
    }
    if (!good) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

template <typename T>
__global__ void read_by_cursor(array_view<T> view, std::uint64_t each, unsigned long long* wrong) {
  array_cursor<T> cursor(view);
  const std::uint64_t begin = thread_number() * each;
  for (std::uint64_t i = begin; i < begin + each && i < view.size(); ++i) {
    if (!(cursor[i] == T::of(i))) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

// The lanes of a warp beside each other, some of which look before they write.
template <typename T>
__global__ void write_by_cursor(array_view<T> view,
                                std::uint64_t shift,
                                unsigned long long* wrong) {
  array_cursor<T> cursor(view);
  for (std::uint64_t i = thread_number(); i < view.size(); i += thread_count()) {
    bool good = mixed(i) % 3 != 0 || cursor[i] == T::of(i);
    good = cursor.write(i, T::of(i + shift)) == NvmeStatus::success && good;
    if (!good || !(cursor[i] == T::of(i + shift))) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

// Each lane keeps two lines, which are more than the cache has, and reads beside them.
template <typename T>
__global__ void keep_two_lines(array_view<T> view,
                               std::uint64_t rounds,
                               std::uint64_t shift,
                               unsigned long long* wrong) {
  array_cursor<T> first(view);
  array_cursor<T> second(view);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t i = round * thread_count() + thread_number();
    const std::uint64_t other = (rounds - 1 - round) * thread_count() + thread_number();
    bool good = first[i] == T::of(i);
    good = first.write(i, T::of(i + shift)) == NvmeStatus::success && good;
    good = second[other] == T::of(other + (other <= i ? shift : 0)) && good;
    if (!good || !(view[i] == T::of(i + shift))) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

// A warp a part of 1024 numbers; output lines are written as a whole.
__global__ void add_vectors(array_view<std::uint64_t> a,
                            array_view<std::uint64_t> b,
                            array_view<std::uint64_t> sum,
                            unsigned long long* wrong) {
  constexpr std::uint64_t part = 1024;
  extern __shared__ std::uint64_t memory[];
  std::uint64_t* first = memory + threadIdx.x / 32 * 2 * part;
  std::uint64_t* second = first + part;
  const Lanes warp = Lanes::warp();
  for (std::uint64_t begin = thread_number() / 32 * part; begin < sum.size();
       begin += thread_count() / 32 * part) {
    const std::uint64_t count = sum.size() - begin < part ? sum.size() - begin : part;
    bool good = a.read_range(warp, begin, count, first) == NvmeStatus::success;
    good = b.read_range(warp, begin, count, second) == NvmeStatus::success && good;
    warp.meet();
    for (std::uint64_t i = warp.rank(); i < count; i += 32) {
      first[i] += second[i];
    }
    warp.meet();
    good = sum.write_range(warp, begin, count, first) == NvmeStatus::success && good;
    if (!good && warp.leads()) {
      atomicAdd(wrong, 1ULL);
    }
  }
}

__global__ void read_status(array_view<Word> view,
                            std::uint64_t index,
                            unsigned long long* failed) {
  Word value{};
  if (view.read(index, value) != NvmeStatus::success) {
    atomicAdd(failed, 1ULL);
  }
}

}  // namespace
