// What an NVTX tool sees, recorded for tests: the injection library's side of base/nvtx.hpp.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace hippogriff::testing {

struct NvtxRecord {
  std::string domain;
  std::string name;
  std::uint64_t payload = 0;
  bool ended = false;
};

extern "C" {
using nvtx_injection_records_function = void(std::vector<NvtxRecord>* records);
using nvtx_injection_clear_function = void();
using nvtx_injection_registrations_function = int(const char* name);
}

// Injects the library into this process's NVTX, which must not have been used before.
class NvtxRecorder {
 public:
  explicit NvtxRecorder(const char* library_file)
      : library_(::dlopen(library_file, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      throw std::runtime_error(std::string("no NVTX injection library in ") + library_file);
    }
    // NOLINTNEXTLINE(concurrency-mt-unsafe)
    ::setenv("NVTX_INJECTION64_PATH", library_file, 1);
  }

  [[nodiscard]] std::vector<NvtxRecord> records() const {
    std::vector<NvtxRecord> result;
    exported<nvtx_injection_records_function>("nvtx_injection_records")(&result);
    return result;
  }

  // Forgets the ranges; what was registered stays.
  void clear() const { exported<nvtx_injection_clear_function>("nvtx_injection_clear")(); }

  // How often a name was registered.
  [[nodiscard]] int registrations(const char* name) const {
    return exported<nvtx_injection_registrations_function>("nvtx_injection_registrations")(name);
  }

 private:
  template <typename Function>
  [[nodiscard]] Function* exported(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(library_, name));
  }

  void* library_;
};

}  // namespace hippogriff::testing
