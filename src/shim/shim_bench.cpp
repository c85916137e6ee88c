// What the shim adds to a call, in nanoseconds: the driver alone, and the driver behind the shim.
// usage: shim_bench SHIM DRIVER [rounds]
// With a real driver on a GPU the figures are the program's; with the null driver, the shim's
// alone.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT: theirs
#include <cuda.h>

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

// A driver's functions, from the file itself or from the shim.
class Driver {
 public:
  explicit Driver(const char* file) : library_(::dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      std::fprintf(stderr, "shim_bench: %s\n", ::dlerror());  // NOLINT(concurrency-mt-unsafe)
      std::exit(1);                                           // NOLINT(concurrency-mt-unsafe)
    }
  }

  template <typename Signature>
  Signature* function(const char* name) const {
    return reinterpret_cast<Signature*>(::dlsym(library_, name));
  }

 private:
  void* library_;
};

#define HIPPO_OF(driver, symbol) ((driver).function<decltype(::symbol)>(#symbol))

using Clock = std::chrono::steady_clock;

// Nanoseconds of one call of the driver alone and of the driver behind the shim.
struct Pair {
  double alone = 1e300;
  double behind = 1e300;
};

template <typename Work>
double mean_ns(int rounds, Work&& work) {
  const auto begin = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    work();
  }
  const std::chrono::duration<double, std::nano> spent = Clock::now() - begin;
  return spent.count() / rounds;
}

// The least of several repetitions of each, in turns: both meet the same machine.
// measure(driver): one repetition's nanoseconds.
template <typename Measure>
Pair least_ns(const Driver& alone, const Driver& shim, Measure&& measure) {
  constexpr int repetitions = 9;
  Pair least;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    least.alone = std::min(least.alone, measure(alone));
    least.behind = std::min(least.behind, measure(shim));
  }
  return least;
}

double forwarded_ns(const Driver& driver, int rounds) {
  auto* const version = HIPPO_OF(driver, cuDriverGetVersion);
  return mean_ns(rounds * 20, [&] {
    int number = 0;
    version(&number);
  });
}

double plain_ns(const Driver& driver, int rounds) {
  auto* const allocate = HIPPO_OF(driver, cuMemAlloc_v2);
  auto* const free = HIPPO_OF(driver, cuMemFree_v2);
  return mean_ns(rounds, [&] {
    CUdeviceptr address = 0;
    allocate(&address, 4096);
    free(address);
  });
}

double in_stream_ns(const Driver& driver, int rounds, CUstream stream) {
  auto* const allocate = HIPPO_OF(driver, cuMemAllocAsync);
  auto* const free = HIPPO_OF(driver, cuMemFreeAsync);
  return mean_ns(rounds, [&] {
    CUdeviceptr address = 0;
    allocate(&address, 4096, stream);
    free(address, stream);
  });
}

double two_threads_ns(const Driver& driver, int rounds, CUcontext context) {
  std::vector<double> each(2);
  std::vector<std::thread> threads;
  for (double& result : each) {
    threads.emplace_back([&driver, &result, context, rounds] {
      HIPPO_OF(driver, cuCtxSetCurrent)(context);
      result = plain_ns(driver, rounds);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return *std::max_element(each.begin(), each.end());
}

void report(const char* what, const Pair& ns) {
  std::printf("%-54s %10.1f %10.1f %10.1f\n", what, ns.alone, ns.behind, ns.behind - ns.alone);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: shim_bench SHIM DRIVER [rounds]\n");
    return 2;
  }
  const int rounds = argc > 3 ? static_cast<int>(std::strtol(argv[3], nullptr, 10)) : 20000;
  ::setenv("HIPPOGRIFF_CUDA_DRIVER", argv[2], 1);  // NOLINT(concurrency-mt-unsafe): one thread
  ::setenv("HIPPOGRIFF_MEMORY", "512MiB", 0);      // NOLINT(concurrency-mt-unsafe): one thread
  const Driver alone(argv[2]);
  const Driver shim(argv[1]);
  CUcontext context = nullptr;
  if (HIPPO_OF(shim, cuInit)(0) != CUDA_SUCCESS ||
      HIPPO_OF(shim, cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS) {
    std::fprintf(stderr, "shim_bench: no context on device 0\n");
    return 1;
  }
  CUstream stream = nullptr;
  if (HIPPO_OF(shim, cuCtxSetCurrent)(context) != CUDA_SUCCESS ||
      HIPPO_OF(shim, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    std::fprintf(stderr, "shim_bench: no stream on device 0\n");
    return 1;
  }
  std::printf("%-54s %10s %10s %10s\n", "nanoseconds, least of 9 rounds", "driver", "shim", "more");
  const auto compare = [&](const char* what, auto&& measure) {
    report(what, least_ns(alone, shim, measure));
  };
  compare("a forwarded call", [&](const Driver& each) { return forwarded_ns(each, rounds); });
  compare("cuMemAlloc and cuMemFree, both",
          [&](const Driver& each) { return plain_ns(each, rounds); });
  compare("cuMemAllocAsync and cuMemFreeAsync, both",
          [&](const Driver& each) { return in_stream_ns(each, rounds, nullptr); });
  compare("cuMemAllocAsync and cuMemFreeAsync, own stream, both",
          [&](const Driver& each) { return in_stream_ns(each, rounds, stream); });
  compare("cuMemAlloc and cuMemFree, two threads",
          [&](const Driver& each) { return two_threads_ns(each, rounds, context); });
  return 0;
}
