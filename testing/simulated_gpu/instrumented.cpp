// What a compiler calls for each access to memory when it instruments for ThreadSanitizer, and what
// code of the machine's threads calls of the C library: here they go to the machine. No other part
// of ThreadSanitizer is linked.
#include "testing/simulated_gpu/weak_memory.hpp"

#include <sched.h>

#include <cstdint>
#include <ctime>

namespace hippogriff::simulated {

namespace {

// The memory that watches this place, after others may have had their turn.
WeakMemory* watching(const volatile void* there) {
  WeakMemory* memory = WeakMemory::of_this_run();
  if (memory == nullptr || !memory->watches(const_cast<const void*>(there))) {
    return nullptr;
  }
  memory->machine().may_switch();
  return memory;
}

void read(const void* there, std::size_t bytes) {
  if (WeakMemory* memory = watching(there)) {
    memory->read(there, bytes);
  }
}

void write(const void* there, std::size_t bytes) {
  if (WeakMemory* memory = watching(there)) {
    memory->write(there, bytes);
  }
}

template <typename T>
T load(const volatile T* word, int order) {
  if (WeakMemory* memory = watching(word)) {
    return static_cast<T>(memory->load(const_cast<const T*>(word), *word, Order::of(order)));
  }
  return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

template <typename T>
void store(volatile T* word, T value, int order) {
  if (WeakMemory* memory = watching(word)) {
    memory->store(const_cast<const T*>(word), *word, value, Order::of(order));
  }
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

template <typename T, typename Change>
T change(volatile T* word, int order, Change changed) {
  if (WeakMemory* memory = watching(word)) {
    const T before = *word;
    memory->exchange(const_cast<const T*>(word), before, changed(before), Order::of(order));
    *word = changed(before);
    return before;
  }
  T before = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(
      word, &before, changed(before), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return before;
}

template <typename T>
bool compare_exchange(volatile T* word, T* expected, T value, int order, int failed_order) {
  WeakMemory* memory = watching(word);
  if (memory == nullptr) {
    return __atomic_compare_exchange_n(
        word, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  }
  if (*word == *expected) {
    memory->exchange(const_cast<const T*>(word), *expected, value, Order::of(order));
    *word = value;
    return true;
  }
  *expected = *word;
  static_cast<void>(memory->load(const_cast<const T*>(word), *word, Order::of(failed_order)));
  return false;
}

}  // namespace

}  // namespace hippogriff::simulated

namespace simulated = hippogriff::simulated;

// NOLINTBEGIN(*-identifier-naming, *-reserved-identifier, *-macro-usage, *-macro-parentheses): the
// names are the compiler's
#define HIPPO_PLAIN_ACCESSES(bytes)                       \
  void __tsan_read##bytes(void* at) {                     \
    simulated::read(at, bytes);                           \
  }                                                       \
  void __tsan_write##bytes(void* at) {                    \
    simulated::write(at, bytes);                          \
  }                                                       \
  void __tsan_unaligned_read##bytes(void* at) {           \
    simulated::read(at, bytes);                           \
  }                                                       \
  void __tsan_unaligned_write##bytes(void* at) {          \
    simulated::write(at, bytes);                          \
  }                                                       \
  void __tsan_volatile_read##bytes(void* at) {            \
    simulated::read(at, bytes);                           \
  }                                                       \
  void __tsan_volatile_write##bytes(void* at) {           \
    simulated::write(at, bytes);                          \
  }                                                       \
  void __tsan_unaligned_volatile_read##bytes(void* at) {  \
    simulated::read(at, bytes);                           \
  }                                                       \
  void __tsan_unaligned_volatile_write##bytes(void* at) { \
    simulated::write(at, bytes);                          \
  }

#define HIPPO_ATOMIC_ACCESSES(bits)                                                      \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* at, \
                                                 int order) {                            \
    return simulated::load(at, order);                                                   \
  }                                                                                      \
  void __tsan_atomic##bits##_store(                                                      \
      volatile std::uint##bits##_t* at, std::uint##bits##_t value, int order) {          \
    simulated::store(at, value, order);                                                  \
  }                                                                                      \
  HIPPO_ATOMIC_CHANGE(bits, exchange, value)                                             \
  HIPPO_ATOMIC_CHANGE(bits, fetch_add, static_cast<std::uint##bits##_t>(before + value)) \
  HIPPO_ATOMIC_CHANGE(bits, fetch_sub, static_cast<std::uint##bits##_t>(before - value)) \
  HIPPO_ATOMIC_CHANGE(bits, fetch_and, static_cast<std::uint##bits##_t>(before & value)) \
  HIPPO_ATOMIC_CHANGE(bits, fetch_or, static_cast<std::uint##bits##_t>(before | value))  \
  HIPPO_ATOMIC_COMPARE(bits, strong)                                                     \
  HIPPO_ATOMIC_COMPARE(bits, weak)

#define HIPPO_ATOMIC_CHANGE(bits, name, result)                                              \
  std::uint##bits##_t __tsan_atomic##bits##_##name(                                          \
      volatile std::uint##bits##_t* at, std::uint##bits##_t value, int order) {              \
    return simulated::change(                                                                \
        at, order, [value]([[maybe_unused]] std::uint##bits##_t before) { return result; }); \
  }

#define HIPPO_ATOMIC_COMPARE(bits, strength)                                              \
  int __tsan_atomic##bits##_compare_exchange_##strength(volatile std::uint##bits##_t* at, \
                                                        std::uint##bits##_t* expected,    \
                                                        std::uint##bits##_t value,        \
                                                        int order,                        \
                                                        int failed_order) {               \
    return simulated::compare_exchange(at, expected, value, order, failed_order) ? 1 : 0; \
  }

extern "C" {
void __tsan_init() {}

void __tsan_func_entry(void* /*caller*/) {}

void __tsan_func_exit() {}

void __tsan_vptr_update(void* /*at*/, void* /*value*/) {}

void __tsan_vptr_read(void* /*at*/) {}

void __tsan_read_range(void* at, unsigned long bytes) {
  simulated::read(at, bytes);
}

void __tsan_write_range(void* at, unsigned long bytes) {
  simulated::write(at, bytes);
}

HIPPO_PLAIN_ACCESSES(1)
HIPPO_PLAIN_ACCESSES(2)
HIPPO_PLAIN_ACCESSES(4)
HIPPO_PLAIN_ACCESSES(8)
HIPPO_PLAIN_ACCESSES(16)
HIPPO_ATOMIC_ACCESSES(8)
HIPPO_ATOMIC_ACCESSES(16)
HIPPO_ATOMIC_ACCESSES(32)
HIPPO_ATOMIC_ACCESSES(64)

void __tsan_atomic_thread_fence(int order) {
  simulated::WeakMemory* memory = simulated::WeakMemory::of_this_run();
  if (memory != nullptr && simulated::Order::of(order).acquires) {
    memory->acquire_fence();
  }
}

void __tsan_atomic_signal_fence(int /*order*/) {}

// The machine's time is what its threads have done.
int simulated_clock_gettime(clockid_t clock, timespec* now) {
  const simulated::Machine* machine = simulated::Machine::running();
  if (machine == nullptr) {
    return ::clock_gettime(clock, now);
  }
  constexpr std::uint64_t second_ns = 1'000'000'000;
  constexpr std::uint64_t step_ns = 10;
  const std::uint64_t now_ns = machine->steps() * step_ns;
  now->tv_sec = static_cast<time_t>(1 + now_ns / second_ns);
  now->tv_nsec = static_cast<long>(now_ns % second_ns);
  return 0;
}

int simulated_nanosleep(const timespec* time, timespec* left) {
  if (simulated::Machine* machine = simulated::Machine::running()) {
    machine->yield();
    return 0;
  }
  return ::nanosleep(time, left);
}

int simulated_sched_yield() {
  if (simulated::Machine* machine = simulated::Machine::running()) {
    machine->yield();
    return 0;
  }
  return ::sched_yield();
}
}
// NOLINTEND(*-identifier-naming, *-reserved-identifier, *-macro-usage, *-macro-parentheses)
