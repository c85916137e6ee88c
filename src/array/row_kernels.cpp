// Driver calls that load and launch the kernels, and their image as the build made it, which the
// assembler puts into the library's read-only data.
#include "array/row_kernels.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include "device/cuda_driver.hpp"

#include <algorithm>
#include <array>

#ifndef HIPPOGRIFF_ROW_KERNELS
#error "the build names the image that nvcc made of row_kernels.cu"
#endif

// NOLINTNEXTLINE(hicpp-no-assembler): the one way to take a file into an object without a copy
__asm__(
    ".pushsection .rodata\n"
    ".balign 64\n"
    ".hidden hippogriff_row_kernels\n"
    ".globl hippogriff_row_kernels\n"
    "hippogriff_row_kernels:\n"
    ".incbin \"" HIPPOGRIFF_ROW_KERNELS
    "\"\n"
    ".popsection\n");

// NOLINTNEXTLINE(readability-identifier-naming): as the assembler calls it
extern "C" __attribute__((visibility("hidden"))) const unsigned char hippogriff_row_kernels[];

namespace hippogriff::ondemand {
namespace {

// Enough to keep every GPU busy; more work is taken in turns.
constexpr std::uint64_t groups_max = 1024;
constexpr unsigned warps_each = row_kernel_threads / 32;

class LoadedRowKernels final : public RowKernels {
 public:
  LoadedRowKernels(const CudaDriver& driver, CUmodule module, std::string device)
      : driver_(driver), module_(module), device_(std::move(device)) {}

  ~LoadedRowKernels() override {
    if (driver_.usable()) {
      static_cast<void>(driver_.module_unload(module_));
    }
  }

  LoadedRowKernels(const LoadedRowKernels&) = delete;
  LoadedRowKernels& operator=(const LoadedRowKernels&) = delete;

  [[nodiscard]] CUresult find_functions() {
    const std::array names{gather_kernel_name,
                           scatter_kernel_name,
                           flush_kernel_name,
                           prefetch_kernel_name,
                           zero_copy_kernel_name};
    for (std::size_t i = 0; i < names.size(); ++i) {
      const CUresult result = driver_.module_get_function(&functions_[i], module_, names[i]);
      if (result != CUDA_SUCCESS) {
        return result;
      }
    }
    return CUDA_SUCCESS;
  }

  void launch(RowKernel kernel, const RowMoves& moves, Stream& stream) override {
    RowMoves copy = moves;
    void* arguments[] = {&copy};
    const CUresult result = driver_.launch_kernel(functions_.at(static_cast<std::size_t>(kernel)),
                                                  groups_for(kernel, moves),
                                                  1,
                                                  1,
                                                  row_kernel_threads,
                                                  1,
                                                  1,
                                                  0,
                                                  static_cast<CUstream>(stream.native_handle()),
                                                  arguments,
                                                  nullptr);
    if (result != CUDA_SUCCESS) {
      throw Error({.status = Status::device_error,
                   .operation = "launch a kernel of an array",
                   .object = device_,
                   .device_status = static_cast<int>(result),
                   .detail = driver_.describe(result)});
    }
  }

 private:
  static unsigned groups_for(RowKernel kernel, const RowMoves& moves) {
    std::uint64_t warps = moves.cache.places.place_count() / 32 + 1;
    if (kernel == RowKernel::prefetch) {
      warps = moves.ask_count() / 32 + 1;
    } else if (kernel == RowKernel::zero_copy) {
      warps = moves.count;
    } else if (kernel != RowKernel::flush) {
      warps = moves.is_words() ? moves.count / 32 + 1 : moves.count * moves.parts_each();
    }
    return static_cast<unsigned>(std::min(warps / warps_each + 1, groups_max));
  }

  const CudaDriver& driver_;
  CUmodule module_;
  std::string device_;
  std::array<CUfunction, 5> functions_{};
};

[[noreturn]] void throw_not_loaded(const Device& device, const std::string& why) {
  throw_unsupported("use array on " + device.info().name,
                    "the library's kernels for arrays cannot be loaded (" + why +
                        "): kernels of your own, with array.cuh, still can use it");
}

}  // namespace

std::unique_ptr<RowKernels> RowKernels::load(const Device& device) {
  const CudaDriver* driver = cuda_driver();
  if (driver == nullptr) {
    throw_not_loaded(device, cuda_presence().why_not);
  }
  CUmodule module = nullptr;
  CUresult result = driver->module_load_data(&module, hippogriff_row_kernels);
  if (result == CUDA_SUCCESS) {
    auto loaded = std::make_unique<LoadedRowKernels>(*driver, module, device.info().name);
    result = loaded->find_functions();
    if (result == CUDA_SUCCESS) {
      return loaded;
    }
  }
  throw_not_loaded(device, driver->describe(result));
}

}  // namespace hippogriff::ondemand

#else  // built without CUDA

namespace hippogriff::ondemand {

std::unique_ptr<RowKernels> RowKernels::load(const Device& device) {
  throw_unsupported("use array on " + device.info().name, "this hippogriff was built without CUDA");
}

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_HAS_CUDA
