// The ways of data between files and the device, which is all that a program's `run` and `baseline`
// differ in. Failures throw std::runtime_error, std::system_error or NoDeviceMemory.
#pragma once

#include "workloads/papers/program.hpp"

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

// --- conventional ---

// Host memory from malloc, not touched before something is read into it.
template <typename T>
class HostArray {
 public:
  explicit HostArray(std::size_t count)
      : count_(count), memory_(std::malloc(count * sizeof(T)), &std::free) {
    if (memory_ == nullptr) {
      throw std::bad_alloc();
    }
  }

  [[nodiscard]] T* get() const { return static_cast<T*>(memory_.get()); }

  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  std::size_t count_;
  std::unique_ptr<void, decltype(&std::free)> memory_;
};

// malloc, read.
template <typename T>
HostArray<T> read_array(const Job& job, std::size_t section) {
  HostArray<T> array(job.in.section(section).size_bytes / sizeof(T));
  job.in.read(array.get(), section);
  return array;
}

// cudaMalloc, cudaMemcpy.
template <typename T>
T* copy_in(const Job& job, const HostArray<T>& array) {
  T* memory = job.memory.allocate<T>(array.count());
  job.memory.device().copy_in(memory, array.get(), array.count() * sizeof(T));
  return memory;
}

// malloc, cudaMemcpy.
template <typename T>
HostArray<T> copy_out(const Job& job, const T* memory, std::size_t count) {
  HostArray<T> array(count);
  job.memory.device().copy_out(array.get(), memory, count * sizeof(T));
  return array;
}

// write, until it is on the drive.
template <typename T>
void write_array(const Job& job, const HostArray<T>& array) {
  job.out.write(array.get(), array.count() * sizeof(T), 0);
  job.out.sync();
}

// --- hippogriff, or the pipeline written by hand ---

// hippogriff_send into memory that it allocates; hippogriff_deinit frees it.
template <typename T>
T* send(const Job& job, std::size_t section) {
  return static_cast<T*>(job.movement->send(job.in.file(), job.in.section(section)));
}

// hippogriff_recv, until it is on the drive.
template <typename T>
void recv(const Job& job, T* memory, std::size_t count) {
  job.movement->recv(job.out, memory, count * sizeof(T));
  job.out.sync();
}

// What these are for `run`. hippogriff must have been started.
class Hippogriff final : public Movement {
 public:
  explicit Hippogriff(Workspace& memory) : memory_(memory) {}

  void* send(const File& in, const Section& part) override;
  void recv(const File& out, void* memory, std::size_t size_bytes) override;
  [[nodiscard]] std::string report() const override;

 private:
  Workspace& memory_;
};
