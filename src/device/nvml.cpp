// NVML's functions by dlopen. Its types are restated here: they are a binary interface, and the
// header is not on machines that only run programs.
#include "device/nvml.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <new>

namespace hippogriff {

namespace {

using Result = int;  // nvmlReturn_t; 0 is success
using Handle = struct nvmlDevice_st*;

constexpr Result success = 0;
constexpr Result insufficient_size = 7;

struct Memory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

struct Utilization {
  unsigned int gpu = 0;
  unsigned int memory = 0;
};

struct ProcessInfo {
  unsigned int pid = 0;
  unsigned long long used_gpu_memory = 0;
  unsigned int gpu_instance_id = 0;
  unsigned int compute_instance_id = 0;
};

// nvmlProcessInfo_t's "not available" for memory.
constexpr unsigned long long memory_unknown = ~0ULL;

struct Nvml {
  Result (*init)() = nullptr;
  Result (*get_count)(unsigned int*) = nullptr;
  Result (*by_index)(unsigned int, Handle*) = nullptr;
  Result (*by_uuid)(const char*, Handle*) = nullptr;
  Result (*get_uuid)(Handle, char*, unsigned int) = nullptr;
  Result (*get_name)(Handle, char*, unsigned int) = nullptr;
  Result (*get_index)(Handle, unsigned int*) = nullptr;
  Result (*get_memory)(Handle, Memory*) = nullptr;
  Result (*get_utilization)(Handle, Utilization*) = nullptr;
  Result (*get_processes)(Handle, unsigned int*, ProcessInfo*) = nullptr;
  std::string obstacle;
};

template <typename Function>
void bind(void* library, const char* symbol, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  if (function == nullptr && missing.empty()) {
    missing = symbol;
  }
}

Nvml load_nvml() {
  Nvml nvml;
  const char* chosen = ::secure_getenv("HIPPOGRIFF_NVML");
  const std::string file = chosen != nullptr ? chosen : "libnvidia-ml.so.1";
  void* library = file.empty() ? nullptr : ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    nvml.obstacle = "NVML (" + file + ") cannot be opened";
    return nvml;
  }
  std::string missing;
  bind(library, "nvmlInit_v2", nvml.init, missing);
  bind(library, "nvmlDeviceGetCount_v2", nvml.get_count, missing);
  bind(library, "nvmlDeviceGetHandleByIndex_v2", nvml.by_index, missing);
  bind(library, "nvmlDeviceGetHandleByUUID", nvml.by_uuid, missing);
  bind(library, "nvmlDeviceGetUUID", nvml.get_uuid, missing);
  bind(library, "nvmlDeviceGetName", nvml.get_name, missing);
  bind(library, "nvmlDeviceGetIndex", nvml.get_index, missing);
  bind(library, "nvmlDeviceGetMemoryInfo", nvml.get_memory, missing);
  bind(library, "nvmlDeviceGetUtilizationRates", nvml.get_utilization, missing);
  bind(library, "nvmlDeviceGetComputeRunningProcesses_v3", nvml.get_processes, missing);
  if (!missing.empty()) {
    nvml.obstacle = "NVML (" + file + ") lacks " + missing;
  } else if (const Result result = nvml.init(); result != success) {
    nvml.obstacle = "NVML does not start (nvmlReturn_t " + std::to_string(result) + ")";
  }
  return nvml;
}

// Never destroyed: threads may ask while the process exits.
const Nvml& nvml() noexcept {
  static const auto* const loaded = new (std::nothrow) Nvml([]() noexcept {
    try {
      return load_nvml();
    } catch (...) {
      return Nvml{.obstacle = "no memory"};
    }
  }());
  static const Nvml none{.obstacle = "no memory"};
  return loaded != nullptr ? *loaded : none;
}

std::optional<GpuFacts> describe(Handle handle) {
  GpuFacts facts;
  std::array<char, 96> text{};
  Memory memory;
  unsigned int index = 0;
  if (nvml().get_uuid(handle, text.data(), text.size() - 1) != success) {
    return std::nullopt;
  }
  facts.uuid = text.data();
  if (nvml().get_memory(handle, &memory) != success ||
      nvml().get_index(handle, &index) != success) {
    return std::nullopt;
  }
  facts.memory_bytes = memory.total;
  facts.used_bytes = memory.used;
  facts.index = static_cast<int>(index);
  text = {};
  if (nvml().get_name(handle, text.data(), text.size() - 1) == success) {
    facts.model = text.data();
  }
  Utilization utilization;
  if (nvml().get_utilization(handle, &utilization) == success) {
    facts.utilization_pct = utilization.gpu;
  }
  return facts;
}

Handle handle_of(const std::string& uuid) {
  Handle handle = nullptr;
  return nvml().obstacle.empty() && nvml().by_uuid(uuid.c_str(), &handle) == success ? handle
                                                                                     : nullptr;
}

}  // namespace

std::string nvml_obstacle() {
  return nvml().obstacle;
}

std::vector<GpuFacts> list_gpus() {
  std::vector<GpuFacts> gpus;
  unsigned int count = 0;
  if (!nvml().obstacle.empty() || nvml().get_count(&count) != success) {
    return gpus;
  }
  for (unsigned int index = 0; index < count; ++index) {
    Handle handle = nullptr;
    if (nvml().by_index(index, &handle) != success) {
      continue;
    }
    if (auto facts = describe(handle)) {
      gpus.push_back(*std::move(facts));
    }
  }
  return gpus;
}

std::optional<GpuFacts> find_gpu(const std::string& uuid) {
  const Handle handle = handle_of(uuid);
  return handle != nullptr ? describe(handle) : std::nullopt;
}

std::optional<std::uint64_t> gpu_used_bytes(const std::string& uuid) {
  const Handle handle = handle_of(uuid);
  Memory memory;
  return handle != nullptr && nvml().get_memory(handle, &memory) == success
             ? std::optional<std::uint64_t>(memory.used)
             : std::nullopt;
}

std::vector<GpuProcess> gpu_processes(const std::string& uuid) {
  const Handle handle = handle_of(uuid);
  if (handle == nullptr) {
    return {};
  }
  std::vector<ProcessInfo> found;
  Result result = insufficient_size;
  // More may come between two calls.
  for (unsigned int capacity = 64; result == insufficient_size && capacity <= 4096; capacity *= 4) {
    found.resize(capacity);
    unsigned int count = capacity;
    result = nvml().get_processes(handle, &count, found.data());
    found.resize(result == success ? std::min(count, capacity) : 0);
  }
  // Each once: with MIG it may be listed for each instance.
  std::map<std::uint64_t, std::optional<std::uint64_t>> used;
  for (const ProcessInfo& process : found) {
    std::optional<std::uint64_t>& bytes = used[process.pid];
    if (process.used_gpu_memory != memory_unknown) {
      bytes = bytes.value_or(0) + process.used_gpu_memory;
    }
  }
  std::vector<GpuProcess> processes;
  for (const auto& [pid, bytes] : used) {
    processes.push_back({.pid = pid, .used_bytes = bytes});
  }
  return processes;
}

}  // namespace hippogriff
