// Where the programs compute: a GPU through the CUDA runtime, as any program would, or device host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

// The device has not so much memory left.
class NoDeviceMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One device, used from one thread. Every function waits, and throws std::runtime_error with the
// device's own words, or NoDeviceMemory.
class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] virtual bool is_gpu() const = 0;
  virtual void* allocate(std::size_t size_bytes) = 0;
  virtual void free(void* memory) noexcept = 0;
  virtual void fill(void* memory, std::size_t size_bytes) = 0;  // with any bytes
  virtual void copy_in(void* to, const void* from, std::size_t size_bytes) = 0;
  virtual void copy_out(void* to, const void* from, std::size_t size_bytes) = 0;
};

// The number of CUDA GPUs; 0 also where there is no driver. It makes no context.
int gpu_count();

// What a name of the command line means here: "host" or "cuda:N". Throws std::invalid_argument.
std::string resolve_device(const std::string& name);

// Opens a device by its resolved name; a GPU's context is made now.
std::unique_ptr<Device> open_device(const std::string& name);

// The same, but at its first use.
std::unique_ptr<Device> open_device_at_use(const std::string& name);

// open_device of GPU `number`; in builds without CUDA it throws.
std::unique_ptr<Device> open_gpu(int number);

// Until all work of the current GPU is through. Throws std::runtime_error.
void wait_for_gpu();

// One allocation of a device, of which arrays are cut. All of it is written once, so that the
// memory is really used. Arrays live as long as it does.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, std::size_t size_bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // What an array of so many bytes takes of it.
  static constexpr std::size_t rounded(std::size_t size_bytes) {
    return (size_bytes + alignment - 1) / alignment * alignment;
  }

  // An array; std::invalid_argument when the rest is smaller.
  template <typename T>
  T* cut(std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    return static_cast<T*>(cut_bytes(count * sizeof(T)));
  }

  // Ends all arrays; the memory stays.
  void clear() { used_bytes_ = 0; }

  // Into the beginning of an array that is large enough.
  template <typename T>
  void write(T* array, const std::vector<T>& values) {
    if (!values.empty()) {
      device_.copy_in(array, values.data(), values.size() * sizeof(T));
    }
  }

  template <typename T>
  T* copy_in(const std::vector<T>& values) {
    T* array = cut<T>(values.size());
    write(array, values);
    return array;
  }

  template <typename T>
  std::vector<T> copy_out(const T* array, std::size_t count) {
    std::vector<T> values(count);
    if (count > 0) {
      device_.copy_out(values.data(), array, count * sizeof(T));
    }
    return values;
  }

 private:
  static constexpr std::size_t alignment = 256;

  void* cut_bytes(std::size_t size_bytes);

  Device& device_;
  std::size_t size_bytes_;
  std::size_t used_bytes_ = 0;
  char* memory_;
};
