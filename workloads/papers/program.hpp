// The frame of the papers' programs: `generate`, `run`, `pipelined`, `baseline` and `check`.
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

  // For memory that somebody else allocated there, and frees.
  void count(std::size_t size_bytes) { allocated_bytes_ += size_bytes; }

  // All that was ever allocated, since nothing is freed before the end.
  [[nodiscard]] std::uint64_t allocated_bytes() const { return allocated_bytes_; }

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
  std::uint64_t allocated_bytes_ = 0;
};

// Throws what hippogriff_last_error says: NoDeviceMemory or std::runtime_error.
[[noreturn]] void throw_hippogriff_error();

// What the kernels cannot do without: the bytes that must come from and go to the device's memory,
// and the arithmetic. Divided by what a device can do they are the shortest time.
struct KernelCost {
  double bytes = 0;
  double operations = 0;
};

// A way of the data between files and the device: all that `run` and `pipelined` differ in.
class Movement {
 public:
  Movement() = default;
  virtual ~Movement() = default;
  Movement(const Movement&) = delete;
  Movement& operator=(const Movement&) = delete;

  // An extent of a file into device memory that this allocates.
  virtual void* send(const File& in, const Section& part) = 0;
  // Device memory into a file, from its first byte.
  virtual void recv(const File& out, void* memory, std::size_t size_bytes) = 0;
  // JSON: what was done.
  [[nodiscard]] virtual std::string report() const = 0;
};

// One run of a program, with hippogriff or without. `baseline` has no movement.
struct Job {
  const Input& in;
  const File& out;
  Workspace& memory;
  Movement* movement = nullptr;
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
  void (*run)(Job&) = nullptr;  // by the job's movement
  void (*baseline)(Job&) = nullptr;
  Verdict (*check)(const Input& in, const File& out) = nullptr;
};

// The main of each program. Exit status: 0; 1 wrong or failed; 2 the command line is; 3 there was
// no device memory.
int paper_main(int argc, char** argv, const PaperProgram& program);
