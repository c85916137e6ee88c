// A stand-in for libcufile.so.0: reads and writes go to host-addressable "device" memory by pread
// and pwrite. Tests load it by its path and steer it through FakeCuFile.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string>

extern "C" {
using fake_cufile_reset_function = void();
using fake_cufile_set_function = void(const char* what, int value);
using fake_cufile_count_function = int(const char* what);
}

namespace hippogriff::testing {

class FakeCuFile {
 public:
  explicit FakeCuFile(const std::string& library_file)
      : library_(::dlopen(library_file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      throw std::runtime_error("no fake cuFile in " + library_file);
    }
    exported<fake_cufile_reset_function>("fake_cufile_reset")();
  }

  // "nvfs_major", "feature_flags", "control_flags", "use_count": what the driver tells.
  // "open_result", "properties_result", "register_result": cuFile errors of these calls.
  // "io_result": what reads and writes return instead of moving bytes; "io_errno": errno with it.
  // "io_bytes_max": the most bytes that one call moves. "ignores_parameters": 1 keeps
  // control_flags.
  void set(const char* what, int value) const {
    exported<fake_cufile_set_function>("fake_cufile_set")(what, value);
  }

  // "opens": calls of cuFileDriverOpen; "handles": files registered now; "p2pdma_wanted"; and
  // whatever set() sets.
  [[nodiscard]] int count(const char* what) const {
    return exported<fake_cufile_count_function>("fake_cufile_count")(what);
  }

 private:
  template <typename Function>
  [[nodiscard]] Function* exported(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(library_, name));
  }

  void* library_;
};

}  // namespace hippogriff::testing
