// NVML as a file tells it, read anew at each call. FAKE_NVML_FILE names it; its lines are
//   gpu UUID MEMORY_BYTES USED_BYTES UTILIZATION_PCT      in nvidia-smi's order
//   process UUID PID USED_BYTES
// Of a GPU that processes share (testing/null_cuda/shared_gpu.hpp) it tells what they hold: that is
// the file's first. What a GPU has was told: then the next of FAKE_NVML_FILE.1 to .20 takes its
// place, if there is one.
#include "testing/null_cuda/shared_gpu.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int success = 0;
constexpr int invalid_argument = 2;
constexpr int not_found = 6;
constexpr int insufficient_size = 7;

struct Process {
  std::string uuid;
  unsigned int pid = 0;
  unsigned long long used = 0;
};

// nvmlProcessInfo_t
struct ProcessInfo {
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

struct Gpu {
  std::string uuid;
  unsigned long long total = 0;
  unsigned long long used = 0;
  unsigned int utilization = 0;
};

struct Machine {
  std::vector<Gpu> gpus;
  std::vector<Process> processes;
};

Machine machine() {
  Machine found;
  const char* path = std::getenv("FAKE_NVML_FILE");  // NOLINT(concurrency-mt-unsafe): in tests
  std::ifstream file(path != nullptr ? path : "");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "gpu") {
      Gpu gpu;
      words >> gpu.uuid >> gpu.total >> gpu.used >> gpu.utilization;
      found.gpus.push_back(gpu);
    } else if (kind == "process") {
      Process process;
      words >> process.uuid >> process.pid >> process.used;
      found.processes.push_back(process);
    }
  }
  if (const auto* shared = hippogriff::testing::SharedGpu::of_process();
      shared != nullptr && !found.gpus.empty()) {
    ::usleep(500);  // as long as NVML takes, in which the others go on
    for (const auto& holder : shared->holders()) {
      found.gpus.front().used += holder.bytes;
      found.processes.push_back(
          {found.gpus.front().uuid, static_cast<unsigned int>(holder.pid), holder.bytes});
    }
  }
  return found;
}

void go_on() {
  const char* path = std::getenv("FAKE_NVML_FILE");  // NOLINT(concurrency-mt-unsafe): in tests
  const std::string file = path != nullptr ? path : "";
  for (int number = 1; number <= 20; ++number) {
    if (std::rename((file + "." + std::to_string(number)).c_str(), file.c_str()) == 0) {
      return;
    }
  }
}

// A handle is the GPU's index and one more.
using Handle = std::uintptr_t;

int with_gpu(Handle handle, auto body) {
  const Machine now = machine();
  if (handle == 0 || handle > now.gpus.size()) {
    return invalid_argument;
  }
  return body(now.gpus[handle - 1], now);
}

int give(const std::string& text, char* to, unsigned int length) {
  if (text.size() + 1 > length) {
    return insufficient_size;
  }
  std::memcpy(to, text.c_str(), text.size() + 1);
  return success;
}

}  // namespace

#define HIPPO_FAKE extern "C" __attribute__((visibility("default"))) int

// NOLINTBEGIN(readability-identifier-naming): NVML's names
HIPPO_FAKE nvmlInit_v2() {
  return success;
}

HIPPO_FAKE nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = static_cast<unsigned int>(machine().gpus.size());
  return success;
}

HIPPO_FAKE nvmlDeviceGetHandleByIndex_v2(unsigned int index, Handle* handle) {
  *handle = Handle{index} + 1;
  return index < machine().gpus.size() ? success : invalid_argument;
}

HIPPO_FAKE nvmlDeviceGetHandleByUUID(const char* uuid, Handle* handle) {
  const Machine now = machine();
  const auto at = std::ranges::find(now.gpus, std::string(uuid), &Gpu::uuid);
  *handle = static_cast<Handle>(at - now.gpus.begin()) + 1;
  return at != now.gpus.end() ? success : not_found;
}

HIPPO_FAKE nvmlDeviceGetUUID(Handle handle, char* uuid, unsigned int length) {
  return with_gpu(handle, [&](const Gpu& gpu, auto&) { return give(gpu.uuid, uuid, length); });
}

HIPPO_FAKE nvmlDeviceGetName(Handle handle, char* name, unsigned int length) {
  return with_gpu(handle, [&](auto&, auto&) { return give("Fake GPU", name, length); });
}

HIPPO_FAKE nvmlDeviceGetIndex(Handle handle, unsigned int* index) {
  *index = static_cast<unsigned int>(handle - 1);
  return success;
}

HIPPO_FAKE nvmlDeviceGetMemoryInfo(Handle handle, unsigned long long* total_free_used) {
  return with_gpu(handle, [&](const Gpu& gpu, auto&) {
    total_free_used[0] = gpu.total;
    total_free_used[1] = gpu.total - gpu.used;
    total_free_used[2] = gpu.used;
    go_on();
    return success;
  });
}

HIPPO_FAKE nvmlDeviceGetUtilizationRates(Handle handle, unsigned int* gpu_and_memory) {
  return with_gpu(handle, [&](const Gpu& gpu, auto&) {
    gpu_and_memory[0] = gpu.utilization;
    gpu_and_memory[1] = 0;
    return success;
  });
}

HIPPO_FAKE nvmlDeviceGetComputeRunningProcesses_v3(Handle handle,
                                                   unsigned int* count,
                                                   ProcessInfo* infos) {
  return with_gpu(handle, [&](const Gpu& gpu, const Machine& now) {
    std::vector<ProcessInfo> found;
    for (const Process& process : now.processes) {
      if (process.uuid == gpu.uuid) {
        found.push_back({process.pid, process.used, 0, 0});
      }
    }
    const bool fits = found.size() <= *count;
    std::copy_n(found.begin(), fits ? found.size() : 0, infos);
    *count = static_cast<unsigned int>(found.size());
    return fits ? success : insufficient_size;
  });
}

// NOLINTEND(readability-identifier-naming)
