// A CUDA GPU for the hand-written contenders, by the driver's functions, opened at run time.
#include "transfer/reference_device.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include <cuda.h>

#include <dlfcn.h>

#include <array>
#include <cctype>
#include <fstream>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace bench {

namespace {

struct Driver {
  decltype(&cuInit) init = nullptr;
  decltype(&cuGetErrorString) get_error_string = nullptr;
  decltype(&cuDriverGetVersion) driver_get_version = nullptr;
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDeviceGetCount) device_get_count = nullptr;
  decltype(&cuDeviceGetName) device_get_name = nullptr;
  decltype(&cuDeviceTotalMem) device_total_memory = nullptr;
  decltype(&cuDeviceGetPCIBusId) device_get_pci_bus_id = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) primary_context_retain = nullptr;
  decltype(&cuCtxSetCurrent) context_set_current = nullptr;
  decltype(&cuMemHostRegister) host_register = nullptr;
  decltype(&cuMemHostUnregister) host_unregister = nullptr;
  decltype(&cuMemcpyHtoD) copy_to_device = nullptr;
  decltype(&cuMemcpyDtoH) copy_to_host = nullptr;
  decltype(&cuMemcpyHtoDAsync) copy_to_device_async = nullptr;
  decltype(&cuMemcpyDtoHAsync) copy_to_host_async = nullptr;
  decltype(&cuMemsetD8) fill = nullptr;
  decltype(&cuCtxSynchronize) context_synchronize = nullptr;
  decltype(&cuStreamCreate) stream_create = nullptr;
  decltype(&cuStreamDestroy) stream_destroy = nullptr;
  decltype(&cuStreamSynchronize) stream_synchronize = nullptr;
  decltype(&cuEventCreate) event_create = nullptr;
  decltype(&cuEventDestroy) event_destroy = nullptr;
  decltype(&cuEventRecord) event_record = nullptr;
  decltype(&cuEventSynchronize) event_synchronize = nullptr;

  void check(CUresult status, const char* what) const {
    if (status != CUDA_SUCCESS) {
      const char* words = nullptr;
      get_error_string(status, &words);
      throw std::runtime_error(std::string(what) + ": " + (words != nullptr ? words : "?") + " (" +
                               std::to_string(status) + ")");
    }
  }
};

// Two steps, so that the macros of cuda.h choose the version of the function first.
#define HIPPO_BENCH_EXPANDED(name) #name
#define HIPPO_BENCH_SYMBOL(name) HIPPO_BENCH_EXPANDED(name)

// Fills the table; false with a reason where a function is missing.
bool load_driver(Driver& driver, std::string& why_not) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why_not = "no CUDA driver: libcuda.so.1 cannot be opened";
    return false;
  }
  const auto load = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr) {
      why_not = std::string("the CUDA driver lacks ") + symbol;
    }
  };
  load(driver.init, HIPPO_BENCH_SYMBOL(cuInit));
  load(driver.get_error_string, HIPPO_BENCH_SYMBOL(cuGetErrorString));
  load(driver.driver_get_version, HIPPO_BENCH_SYMBOL(cuDriverGetVersion));
  load(driver.device_get, HIPPO_BENCH_SYMBOL(cuDeviceGet));
  load(driver.device_get_count, HIPPO_BENCH_SYMBOL(cuDeviceGetCount));
  load(driver.device_get_name, HIPPO_BENCH_SYMBOL(cuDeviceGetName));
  load(driver.device_total_memory, HIPPO_BENCH_SYMBOL(cuDeviceTotalMem));
  load(driver.device_get_pci_bus_id, HIPPO_BENCH_SYMBOL(cuDeviceGetPCIBusId));
  load(driver.primary_context_retain, HIPPO_BENCH_SYMBOL(cuDevicePrimaryCtxRetain));
  load(driver.context_set_current, HIPPO_BENCH_SYMBOL(cuCtxSetCurrent));
  load(driver.host_register, HIPPO_BENCH_SYMBOL(cuMemHostRegister));
  load(driver.host_unregister, HIPPO_BENCH_SYMBOL(cuMemHostUnregister));
  load(driver.copy_to_device, HIPPO_BENCH_SYMBOL(cuMemcpyHtoD));
  load(driver.copy_to_host, HIPPO_BENCH_SYMBOL(cuMemcpyDtoH));
  load(driver.copy_to_device_async, HIPPO_BENCH_SYMBOL(cuMemcpyHtoDAsync));
  load(driver.copy_to_host_async, HIPPO_BENCH_SYMBOL(cuMemcpyDtoHAsync));
  load(driver.fill, HIPPO_BENCH_SYMBOL(cuMemsetD8));
  load(driver.context_synchronize, HIPPO_BENCH_SYMBOL(cuCtxSynchronize));
  load(driver.stream_create, HIPPO_BENCH_SYMBOL(cuStreamCreate));
  load(driver.stream_destroy, HIPPO_BENCH_SYMBOL(cuStreamDestroy));
  load(driver.stream_synchronize, HIPPO_BENCH_SYMBOL(cuStreamSynchronize));
  load(driver.event_create, HIPPO_BENCH_SYMBOL(cuEventCreate));
  load(driver.event_destroy, HIPPO_BENCH_SYMBOL(cuEventDestroy));
  load(driver.event_record, HIPPO_BENCH_SYMBOL(cuEventRecord));
  load(driver.event_synchronize, HIPPO_BENCH_SYMBOL(cuEventSynchronize));
  return why_not.empty();
}

class CudaQueue : public CopyQueue {
 public:
  CudaQueue(const Driver& driver, unsigned slots) : driver_(driver), events_(slots, nullptr) {
    driver_.check(driver_.stream_create(&stream_, CU_STREAM_NON_BLOCKING), "create a stream");
    for (CUevent& event : events_) {
      driver_.check(driver_.event_create(&event, CU_EVENT_DISABLE_TIMING), "create an event");
    }
  }

  ~CudaQueue() override {
    driver_.stream_synchronize(stream_);
    for (const CUevent event : events_) {
      driver_.event_destroy(event);
    }
    driver_.stream_destroy(stream_);
  }

  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void to_device(std::uint64_t to,
                 const std::byte* from,
                 std::size_t size,
                 unsigned slot) override {
    driver_.check(driver_.copy_to_device_async(to, from, size, stream_), "copy to the GPU");
    driver_.check(driver_.event_record(events_[slot], stream_), "record an event");
  }

  void to_host(std::byte* to, std::uint64_t from, std::size_t size, unsigned slot) override {
    driver_.check(driver_.copy_to_host_async(to, from, size, stream_), "copy from the GPU");
    driver_.check(driver_.event_record(events_[slot], stream_), "record an event");
  }

  void wait(unsigned slot) override {
    driver_.check(driver_.event_synchronize(events_[slot]), "wait for a copy");
  }

  void drain() override { driver_.check(driver_.stream_synchronize(stream_), "wait for a stream"); }

 private:
  const Driver& driver_;
  CUstream stream_ = nullptr;
  std::vector<CUevent> events_;
};

class CudaReference : public ReferenceDevice {
 public:
  CudaReference(const Driver& driver, int index) : driver_(driver), index_(index) {
    driver_.check(driver_.device_get(&device_, index), "cuDeviceGet");
    driver_.check(driver_.primary_context_retain(&context_, device_), "retain the context");
    driver_.check(driver_.context_set_current(context_), "set the context");
  }

  [[nodiscard]] std::string name() const override { return "cuda:" + std::to_string(index_); }

  [[nodiscard]] nlohmann::json facts() const override {
    std::array<char, 256> model{};
    std::array<char, 32> bus{};
    std::size_t memory_bytes = 0;
    int version = 0;
    driver_.check(driver_.device_get_name(model.data(), model.size(), device_), "ask the model");
    driver_.check(driver_.device_total_memory(&memory_bytes, device_), "ask the memory");
    driver_.check(driver_.driver_get_version(&version), "ask the driver's version");
    nlohmann::json facts = {{"name", name()},
                            {"model", model.data()},
                            {"memory_bytes", memory_bytes},
                            {"cuda_driver_version", version}};
    if (driver_.device_get_pci_bus_id(bus.data(), bus.size(), device_) == CUDA_SUCCESS) {
      std::string id = bus.data();
      for (char& letter : id) {
        letter = static_cast<char>(std::tolower(letter));
      }
      for (const char* fact : {"current_link_speed", "current_link_width", "numa_node"}) {
        std::ifstream file("/sys/bus/pci/devices/" + id + "/" + fact);
        std::string value;
        if (std::getline(file, value)) {
          facts[fact] = value;
        }
      }
    }
    std::ifstream kernel_module("/proc/driver/nvidia/version");
    std::string line;
    if (std::getline(kernel_module, line)) {
      facts["kernel_module"] = line;
    }
    return facts;
  }

  std::byte* allocate_pinned(std::size_t size) override {
    std::byte* memory = allocate_huge(size);
    register_host(memory, size);
    return memory;
  }

  void register_host(std::byte* memory, std::size_t size) override {
    driver_.check(driver_.host_register(memory, size, CU_MEMHOSTREGISTER_PORTABLE), "register");
  }

  void unregister_host(std::byte* memory) override {
    driver_.check(driver_.host_unregister(memory), "unregister");
  }

  void to_device(std::uint64_t to, const std::byte* from, std::size_t size) override {
    driver_.check(driver_.copy_to_device(to, from, size), "copy to the GPU");
  }

  void to_host(std::byte* to, std::uint64_t from, std::size_t size) override {
    driver_.check(driver_.copy_to_host(to, from, size), "copy from the GPU");
  }

  void fill(std::uint64_t address, unsigned char value, std::size_t size) override {
    driver_.check(driver_.fill(address, value, size), "fill");
    driver_.check(driver_.context_synchronize(), "wait for the fill");
  }

  std::unique_ptr<CopyQueue> create_queue(unsigned slots) override {
    return std::make_unique<CudaQueue>(driver_, slots);
  }

  void make_current() override {
    driver_.check(driver_.context_set_current(context_), "set the context");
  }

  [[nodiscard]] unsigned copy_threads() const override { return 1; }

  [[nodiscard]] bool is_gpu() const override { return true; }

 private:
  Driver driver_;
  int index_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

}  // namespace

std::unique_ptr<ReferenceDevice> make_cuda_reference(int index, std::string& why_not) {
  Driver driver;
  if (!load_driver(driver, why_not)) {
    return nullptr;
  }
  int count = 0;
  const CUresult status = driver.init(0);
  if (status != CUDA_SUCCESS || driver.device_get_count(&count) != CUDA_SUCCESS || index >= count) {
    why_not =
        "no such GPU (cuInit " + std::to_string(status) + ", " + std::to_string(count) + " GPUs)";
    return nullptr;
  }
  return std::make_unique<CudaReference>(driver, index);
}

}  // namespace bench

#else

namespace bench {

std::unique_ptr<ReferenceDevice> make_cuda_reference(int /*index*/, std::string& why_not) {
  why_not = "built without CUDA";
  return nullptr;
}

}  // namespace bench

#endif
