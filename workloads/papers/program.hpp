// The frame of the papers' programs: `generate`, `run`, `baseline` and `check`, and what they tell.
#pragma once

#include "workloads/papers/file.hpp"
#include "workloads/sharing/device.hpp"
#include "workloads/sharing/program.hpp"

#include <cstdint>
#include <string>
#include <vector>

// The device of a run and what was allocated there, which is freed at the end.
class Workspace {
 public:
  enum class Allocator {
    device,      // cudaMalloc
    hippogriff,  // hippogriff_malloc, which the node counts; for hippogriff's default device
  };

  Workspace(Device& device, Allocator allocator) : device_(device), allocator_(allocator) {}

  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  [[nodiscard]] Device& device() const { return device_; }

  // Throws std::runtime_error or NoDeviceMemory.
  template <typename T>
  T* allocate(std::size_t count) {
    return static_cast<T*>(allocate_bytes(count * sizeof(T)));
  }

  // One element, there and back.
  template <typename T>
  T get(const T* from) const {
    T value{};
    device_.copy_out(&value, from, sizeof(T));
    return value;
  }

  template <typename T>
  void put(T* to, const T& value) const {
    device_.copy_in(to, &value, sizeof(T));
  }

  // Until all kernels are through.
  void wait() const {
    if (device_.is_gpu()) {
      wait_for_gpu();
    }
  }

 private:
  void* allocate_bytes(std::size_t size_bytes);

  Device& device_;
  Allocator allocator_;
  std::vector<void*> allocated_;
};

// Throws what hippogriff_last_error says: NoDeviceMemory or std::runtime_error.
[[noreturn]] void throw_hippogriff_error();

// What the kernels cannot do without: the bytes that must come from and go to the device's memory,
// and the arithmetic. Divided by what a device can do they are the shortest time.
struct KernelCost {
  double bytes = 0;
  double operations = 0;
};

// One run of a program, with hippogriff or without.
struct Job {
  const Input& in;
  const File& out;
  Workspace& memory;
  Phases phases;
  KernelCost cost;
};

// What `check` found.
struct Verdict {
  bool correct = false;
  std::string words;
};

struct PaperProgram {
  Format format;
  const char* summary = nullptr;
  std::uint64_t (*output_bytes)(const Numbers&) = nullptr;
  void (*generate)(const Numbers&, const RandomField&, const InputWriter&) = nullptr;
  void (*run)(Job&) = nullptr;
  void (*baseline)(Job&) = nullptr;
  Verdict (*check)(const Input& in, const File& out) = nullptr;
};

// The main of each program. Exit status: 0; 1 wrong or failed; 2 the command line is; 3 there was
// no device memory.
int paper_main(int argc, char** argv, const PaperProgram& program);
