// Driver calls that load and launch the kernel.
#include "checksum/cuda_xxh3.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include "checksum/xxh3_image.hpp"
#include "device/cuda_driver.hpp"

#include <utility>

namespace hippogriff {
namespace {

void check(const CudaDriver& driver, CUresult result, const char* operation) {
  if (result != CUDA_SUCCESS) {
    throw Error({.status = Status::device_error,
                 .operation = operation,
                 .device_status = static_cast<int>(result),
                 .detail = driver.describe(result)});
  }
}

class LoadedXxh3 final : public CudaXxh3 {
 public:
  LoadedXxh3(const CudaDriver& driver, CUmodule module) : driver_(driver), module_(module) {}

  ~LoadedXxh3() override {
    if (driver_.usable()) {
      static_cast<void>(driver_.module_unload(module_));
    }
  }

  LoadedXxh3(const LoadedXxh3&) = delete;
  LoadedXxh3& operator=(const LoadedXxh3&) = delete;

  [[nodiscard]] CUresult find_function() {
    return driver_.module_get_function(&function_, module_, xxh3::kernel_name);
  }

  void launch(Stream& stream,
              xxh3::Block* blocks,
              std::uint64_t* checksums,
              std::uint32_t count) override {
    xxh3::Launch launch{device_address(blocks), device_address(checksums)};
    void* arguments[] = {&launch};
    check(driver_,
          driver_.launch_kernel(function_,
                                count,
                                1,
                                1,
                                xxh3::threads_per_block,
                                1,
                                1,
                                0,
                                static_cast<CUstream>(stream.native_handle()),
                                arguments,
                                nullptr),
          "launch the checksum kernel");
  }

 private:
  [[nodiscard]] std::uint64_t device_address(void* pinned) const {
    CUdeviceptr address = 0;
    check(driver_,
          driver_.mem_host_get_device_pointer(&address, pinned, 0),
          "find the device address of pinned memory");
    return address;
  }

  const CudaDriver& driver_;
  CUmodule module_;
  CUfunction function_ = nullptr;
};

}  // namespace

std::unique_ptr<CudaXxh3> CudaXxh3::load(std::string& why_not) {
  const CudaDriver* driver = cuda_driver();
  if (driver == nullptr) {
    why_not = cuda_presence().why_not;
    return nullptr;
  }
  CUmodule module = nullptr;
  CUresult result = driver->module_load_data(&module, xxh3::kernel_image());
  if (result == CUDA_SUCCESS) {
    auto loaded = std::make_unique<LoadedXxh3>(*driver, module);
    result = loaded->find_function();
    if (result == CUDA_SUCCESS) {
      return loaded;
    }
  }
  why_not = "the checksum kernel cannot be loaded (" + driver->describe(result) + ")";
  return nullptr;
}

}  // namespace hippogriff

#else  // built without CUDA

namespace hippogriff {

std::unique_ptr<CudaXxh3> CudaXxh3::load(std::string& why_not) {
  why_not = "this hippogriff was built without CUDA";
  return nullptr;
}

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
