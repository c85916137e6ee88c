// What lets one header serve CPU threads and GPU threads: integers, atomics, a short sleep, a
// clock.
//
// shared_ref is for words that only threads of one device touch (a GPU's own memory), system_ref
// for words that the host and the device both touch: there a narrower scope would be undefined.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_PORTABLE_HPP_
#define HIPPOGRIFF_ARRAY_PORTABLE_HPP_

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define HIPPO_ANYWHERE __host__ __device__
#define HIPPO_APART __noinline__  // what waits stays out of kernels' registers
#define HIPPO_ARRAY_CUDA 1
#include <cuda/atomic>
#include <cuda/std/cstddef>
#include <cuda/std/cstdint>
#else
#define HIPPO_ANYWHERE
#define HIPPO_APART
#define HIPPO_ARRAY_CUDA 0
#include <atomic>
#include <cstddef>
#include <cstdint>
#endif

#ifdef __CUDACC_RTC__
#define HIPPO_MEMCPY memcpy  // declared without a header
#else
#define HIPPO_MEMCPY __builtin_memcpy
#endif

#ifdef __CUDA_ARCH__
#define HIPPO_UNROLL _Pragma("unroll")
#else
#define HIPPO_UNROLL
#endif

#ifndef __CUDA_ARCH__
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

namespace hippogriff::ondemand {

#if HIPPO_ARRAY_CUDA
using cuda::std::int64_t;
using cuda::std::size_t;
using cuda::std::uint16_t;
using cuda::std::uint32_t;
using cuda::std::uint64_t;
using cuda::std::uint8_t;

template <typename T>
using shared_ref = cuda::atomic_ref<T, cuda::thread_scope_device>;
template <typename T>
using system_ref = cuda::atomic_ref<T, cuda::thread_scope_system>;
using memory_order = cuda::std::memory_order;
inline constexpr memory_order relaxed = cuda::std::memory_order_relaxed;
inline constexpr memory_order acquire = cuda::std::memory_order_acquire;
inline constexpr memory_order release = cuda::std::memory_order_release;
inline constexpr memory_order acq_rel = cuda::std::memory_order_acq_rel;
inline constexpr memory_order seq_cst = cuda::std::memory_order_seq_cst;
#else
using std::int64_t;
using std::size_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

template <typename T>
using shared_ref = std::atomic_ref<T>;
template <typename T>
using system_ref = std::atomic_ref<T>;
using std::memory_order;
inline constexpr memory_order relaxed = std::memory_order_relaxed;
inline constexpr memory_order acquire = std::memory_order_acquire;
inline constexpr memory_order release = std::memory_order_release;
inline constexpr memory_order acq_rel = std::memory_order_acq_rel;
inline constexpr memory_order seq_cst = std::memory_order_seq_cst;
#endif

// Whether a word that is polled says so; then what was written before it is seen, and `value` is
// what the word was. On a GPU each acquire empties the multiprocessor's L1 cache, so there only
// what was waited for is acquired.
template <typename Ref, typename Predicate, typename T>
HIPPO_ANYWHERE bool polled_if(const Ref& word, Predicate says, T& value) {
#ifdef __CUDA_ARCH__
  value = word.load(relaxed);
  if (!says(value)) {
    return false;
  }
#endif
  value = word.load(acquire);
  return says(value);
}

// The same of a word in the device's memory.
template <typename T>
HIPPO_ANYWHERE bool polled(T& word, T expected) {
  T value{};
  return polled_if(shared_ref<T>(word), [expected](T now) { return now == expected; }, value);
}

// Stores `value` in a word of the host's that both sides write, if it is 0. Of several at the same
// moment any stays: over PCIe a GPU's compare-and-swap in host memory is none to the host.
HIPPO_ANYWHERE inline void set_once(uint32_t& word, uint32_t value) {
  system_ref<uint32_t> there(word);
  uint32_t none = 0;
#ifdef __CUDA_ARCH__
  if (there.load(relaxed) == none) {
    there.store(value, relaxed);
  }
#else
  static_cast<void>(there.compare_exchange_strong(none, value, relaxed, relaxed));
#endif
}

// Nanoseconds of a clock that never goes back.
HIPPO_ANYWHERE inline uint64_t now_ns() {
#ifdef __CUDA_ARCH__
  uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  timespec now{};
  static_cast<void>(clock_gettime(CLOCK_MONOTONIC, &now));
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
#endif
}

struct alignas(16) Sixteen {
  uint64_t halves[2];
};

// Bytes on their way between host and GPU memory. A GPU's L2 cache is told to give up first what
// they leave there: what it reads from the host goes through it, too, and waits where it is full of
// bytes that were written (H100: blocks of 512 B read at random and kept in 64 MiB, 40 million a
// second with ordinary stores, 48 with these, as many as when they are not kept).
HIPPO_ANYWHERE inline Sixteen load_passing(const Sixteen* from) {
#ifdef __CUDA_ARCH__
  Sixteen value;
  asm volatile("ld.cs.v2.u64 {%0, %1}, [%2];"
               : "=l"(value.halves[0]), "=l"(value.halves[1])
               : "l"(from)
               : "memory");
  return value;
#else
  return *from;
#endif
}

HIPPO_ANYWHERE inline void store_passing(Sixteen* to, const Sixteen& value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.cs.v2.u64 [%0], {%1, %2};"
               :
               : "l"(to), "l"(value.halves[0]), "l"(value.halves[1])
               : "memory");
#else
  *to = value;
#endif
}

// Lets others run: the longer, the more rounds this wait has had. A thread of a GPU naps for about
// `wanted_ns`, if that is longer.
HIPPO_ANYWHERE inline void pause(uint32_t round, [[maybe_unused]] uint32_t wanted_ns) {
#ifdef __CUDA_ARCH__
  constexpr uint32_t longest = 1'000'000;  // of one __nanosleep
  for (; wanted_ns > longest; wanted_ns -= longest) {
    __nanosleep(longest);
  }
  const uint32_t usual = round < 8 ? 64U : 512U;
  __nanosleep(wanted_ns > usual ? wanted_ns : usual);
#else
  if (round < 8) {
    static_cast<void>(sched_yield());
  } else {
    const timespec nap{.tv_sec = 0, .tv_nsec = round < 24 ? 50'000 : 300'000};
    static_cast<void>(nanosleep(&nap, nullptr));
  }
#endif
}

// A thread that sleeps until a condition holds, and one that makes it hold: the sleeper stores 1 in
// the word, looks at the condition again, and sleeps; the other makes it hold, then calls
// wake_sleeper, which wakes all. All of these accesses are sequentially consistent, so one of the
// two sees the other. Host only: on a GPU nothing happens.
HIPPO_ANYWHERE inline void wake_sleeper([[maybe_unused]] uint32_t& word) {
#ifndef __CUDA_ARCH__
  system_ref<uint32_t> sleeping(word);
  if (sleeping.load(seq_cst) != 0 && sleeping.exchange(0, seq_cst) != 0) {
    constexpr int all = 0x7FFFFFFF;
    static_cast<void>(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, all, nullptr, nullptr, 0));
  }
#endif
}

// Sleeps while the word is 1, at most so long.
HIPPO_ANYWHERE inline void sleep_on([[maybe_unused]] uint32_t& word,
                                    [[maybe_unused]] uint64_t at_most_ns) {
#ifndef __CUDA_ARCH__
  timespec time{};
  time.tv_sec = static_cast<time_t>(at_most_ns / 1'000'000'000U);
  time.tv_nsec = static_cast<long>(at_most_ns % 1'000'000'000U);
  static_cast<void>(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, &time, nullptr, 0));
#endif
}

// Position of the lowest bit that is not set; 64 when all are.
HIPPO_ANYWHERE inline uint32_t trailing_ones(uint64_t bits) {
#ifdef __CUDA_ARCH__
  return bits == ~uint64_t{0} ? 64U
                              : static_cast<uint32_t>(__ffsll(static_cast<long long>(~bits)) - 1);
#else
  return bits == ~uint64_t{0} ? 64U : static_cast<uint32_t>(__builtin_ctzll(~bits));
#endif
}

// Position of the lowest bit that is set; 64 when none is.
HIPPO_ANYWHERE inline uint32_t lowest(uint32_t bits) {
  return trailing_ones(~uint64_t{bits});
}

HIPPO_ANYWHERE inline uint32_t count_ones(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(__popc(bits));
#else
  return static_cast<uint32_t>(__builtin_popcount(bits));
#endif
}

// A bijection that spreads neighbours (the finalizer of splitmix64).
HIPPO_ANYWHERE constexpr uint64_t spread(uint64_t number) {
  number ^= number >> 30U;
  number *= 0xBF58476D1CE4E5B9U;
  number ^= number >> 27U;
  number *= 0x94D049BB133111EBU;
  return number ^ (number >> 31U);
}

// A number below `count` from a spread one, without a division.
HIPPO_ANYWHERE constexpr uint32_t below(uint32_t count, uint32_t spread_bits) {
  return static_cast<uint32_t>((static_cast<uint64_t>(spread_bits) * count) >> 32U);
}

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_PORTABLE_HPP_
