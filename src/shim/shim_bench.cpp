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

// Nanoseconds of one call of work, the least of several rounds.
template <typename Work>
double least_ns(int rounds, Work&& work) {
  constexpr int repetitions = 9;
  double least = 1e300;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    const auto begin = Clock::now();
    for (int round = 0; round < rounds; ++round) {
      work();
    }
    const std::chrono::duration<double, std::nano> spent = Clock::now() - begin;
    least = std::min(least, spent.count() / rounds);
  }
  return least;
}

struct Figures {
  double forwarded = 0;
  double plain = 0;
  double in_stream = 0;
  double two_threads = 0;
};

double plain_ns(const Driver& driver, int rounds) {
  auto* const allocate = HIPPO_OF(driver, cuMemAlloc_v2);
  auto* const free = HIPPO_OF(driver, cuMemFree_v2);
  return least_ns(rounds, [&] {
    CUdeviceptr address = 0;
    allocate(&address, 4096);
    free(address);
  });
}

Figures measure(const Driver& driver, CUcontext context, int rounds) {
  Figures figures;
  HIPPO_OF(driver, cuCtxSetCurrent)(context);
  auto* const version = HIPPO_OF(driver, cuDriverGetVersion);
  figures.forwarded = least_ns(rounds * 20, [&] {
    int number = 0;
    version(&number);
  });
  figures.plain = plain_ns(driver, rounds);
  auto* const allocate = HIPPO_OF(driver, cuMemAllocAsync);
  auto* const free = HIPPO_OF(driver, cuMemFreeAsync);
  figures.in_stream = least_ns(rounds, [&] {
    CUdeviceptr address = 0;
    allocate(&address, 4096, nullptr);
    free(address, nullptr);
  });
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
  figures.two_threads = *std::max_element(each.begin(), each.end());
  return figures;
}

void report(const char* what, double alone, double behind) {
  std::printf("%-44s %10.1f %10.1f %10.1f\n", what, alone, behind, behind - alone);
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
  const Figures without = measure(alone, context, rounds);
  const Figures with = measure(shim, context, rounds);
  std::printf("%-44s %10s %10s %10s\n", "nanoseconds, least of 9 rounds", "driver", "shim", "more");
  report("a forwarded call", without.forwarded, with.forwarded);
  report("cuMemAlloc and cuMemFree, both", without.plain, with.plain);
  report("cuMemAllocAsync and cuMemFreeAsync, both", without.in_stream, with.in_stream);
  report("cuMemAlloc and cuMemFree, two threads", without.two_threads, with.two_threads);
  return 0;
}
