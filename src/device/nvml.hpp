// The GPUs of the machine as NVML tells of them: all of them, whatever this process may use, and
// without a context on any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hippogriff {

struct GpuFacts {
  std::string uuid;   // "GPU-…"
  std::string model;  // "NVIDIA H100 80GB HBM3"
  int index = 0;      // as nvidia-smi counts
  std::uint64_t memory_bytes = 0;
  std::uint64_t used_bytes = 0;                  // by whomever
  std::optional<std::uint32_t> utilization_pct;  // share of the last second with a kernel running
};

struct GpuProcess {
  std::uint64_t pid = 0;                    // as this pid namespace counts, where NVML knows it
  std::optional<std::uint64_t> used_bytes;  // nothing where NVML does not know

  bool operator==(const GpuProcess&) const = default;
};

// libnvidia-ml.so.1, or what HIPPOGRIFF_NVML names (empty: none), loaded at the first call.
// Thread-safe; survives a fork. Throws nothing: what NVML refuses is left out.
std::vector<GpuFacts> list_gpus();
std::optional<GpuFacts> find_gpu(const std::string& uuid);
// By whomever, as GpuFacts has it; two calls of NVML where that takes six.
std::optional<std::uint64_t> gpu_used_bytes(const std::string& uuid);
// Those with a context on the GPU, by pid.
std::vector<GpuProcess> gpu_processes(const std::string& uuid);
// "" when NVML works; else what is missing.
std::string nvml_obstacle();

}  // namespace hippogriff
