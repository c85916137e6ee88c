// Kernels written once, for a GPU and for device host: blocks of threads that meet at barriers.
#pragma once

#include <cstddef>

#ifdef __CUDACC__
#define HIPPO_DEVICE __device__
#define HIPPO_HOST_DEVICE __host__ __device__
#else
#define HIPPO_DEVICE
#define HIPPO_HOST_DEVICE
#endif

// A kernel is a struct, its arguments are the members:
//
//   struct Work {
//     static constexpr unsigned threads = 256;  // of a block
//     static constexpr unsigned resident = 4;   // how many must fit; may be absent
//     struct Shared { ... };                    // of a block; not initialised
//     template <typename Block>
//     HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const;
//   };
//
// What its threads do stands in block.each(...), after which all meet. Between two of these there
// is only what is the same for all threads; shared memory is read there by block.read(...). What a
// thread keeps from one each() to the next is in a PerThread.

// A few numbers that a thread keeps; plain, so that a GPU may have them in registers.
template <typename T, unsigned Count>
struct Few {
  T values[Count];

  HIPPO_DEVICE T& operator[](unsigned i) { return values[i]; }
};

struct NothingShared {};

// Adds, and returns what was there before; for memory of the device and of a block.
template <typename T>
HIPPO_DEVICE T fetch_add(T& target, T value) {
#ifdef __CUDACC__
  return atomicAdd(&target, value);
#else
  return __atomic_fetch_add(&target, value, __ATOMIC_RELAXED);
#endif
}

// What others may be replacing at the moment.
HIPPO_DEVICE inline int peek(const int& value) {
#ifdef __CUDACC__
  return *const_cast<const volatile int*>(&value);
#else
  return __atomic_load_n(&value, __ATOMIC_RELAXED);
#endif
}

// Writes `value` where `expected` is; whether it was.
template <typename T>
HIPPO_DEVICE bool replace(T& target, T expected, T value) {
#ifdef __CUDACC__
  return atomicCAS(&target, expected, value) == expected;
#else
  return __atomic_compare_exchange_n(
      &target, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
}

template <typename T>
HIPPO_DEVICE T smaller(T a, T b) {
  return b < a ? b : a;
}

template <typename T>
HIPPO_DEVICE T larger(T a, T b) {
  return a < b ? b : a;
}

// How many parts of `part` cover `all`.
HIPPO_HOST_DEVICE constexpr std::size_t parts_of(std::size_t all, std::size_t part) {
  return (all + part - 1) / part;
}

// Puts `blocks` blocks on the current GPU's default stream; does not wait. A program's .cu
// instantiates it for its kernels (launch.cuh has the body). Throws std::runtime_error.
template <typename Work>
void on_gpu_blocks(const Work& work, std::size_t blocks);
