// Finds the CUDA driver, checks that it is new enough and works, and says in a sentence when not.
#include "device/cuda_driver.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

namespace hippogriff {
namespace {

constexpr const char* default_library = "libcuda.so.1";

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string loader_error() {
  const char* text = ::dlerror();  // NOLINT(concurrency-mt-unsafe): thread-local in glibc
  return text == nullptr ? "unknown reason" : text;
}

// What a person can do about a failing cuInit.
const char* advice(CUresult result) {
  switch (result) {
    case CUDA_ERROR_NO_DEVICE:
      return "no GPU is visible: check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's GPU "
             "option";
    case CUDA_ERROR_STUB_LIBRARY:
      return "this is the toolkit's stub library: put the driver's own libcuda.so.1 first in the "
             "library path";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return "the driver library and the kernel module are of different versions: reload the "
             "module or reboot";
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return "the system is not ready: on NVSwitch machines start nvidia-fabricmanager";
    case CUDA_ERROR_NOT_INITIALIZED:
      return "the driver cannot be initialized in this process; a process forked after CUDA was "
             "used must call exec first";
    default:
      return "check that nvidia-smi works for this user";
  }
}

// Stores every function; returns the name of the first that is missing, else nullptr.
const char* bind(CudaDriver& driver) {
#define HIPPO_BIND(name, symbol)                                                          \
  driver.name = reinterpret_cast<decltype(driver.name)>(::dlsym(driver.handle, #symbol)); \
  if (driver.name == nullptr) {                                                           \
    return #symbol;                                                                       \
  }
  HIPPO_CUDA_FUNCTIONS(HIPPO_BIND)
#undef HIPPO_BIND
  driver.ctx_record_event = reinterpret_cast<decltype(driver.ctx_record_event)>(
      ::dlsym(driver.handle, "cuCtxRecordEvent"));
  driver.memcpy_batch_async = reinterpret_cast<decltype(driver.memcpy_batch_async)>(
      ::dlsym(driver.handle, "cuMemcpyBatchAsync_v2"));
  return nullptr;
}

int driver_version(void* library) {
  auto* get_version =
      reinterpret_cast<decltype(&::cuDriverGetVersion)>(::dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != CUDA_SUCCESS) {
    return 0;
  }
  return version;
}

// Initializes a bound driver and counts its devices; returns why that is impossible, else "".
std::string initialize(CudaDriver& driver, int& device_count) {
  driver.process = ::getpid();
  CUresult result = driver.init(0);
  if (result == CUDA_SUCCESS) {
    result = driver.device_get_count(&device_count);
  }
  if (result == CUDA_SUCCESS && device_count <= 0) {
    result = CUDA_ERROR_NO_DEVICE;
  }
  if (result == CUDA_SUCCESS) {
    return {};
  }
  device_count = 0;
  return "the CUDA driver does not start (" + driver.describe(result) + ", " +
         std::to_string(static_cast<int>(result)) + "): " + advice(result);
}

const char* chosen_library() noexcept {
  const char* chosen = ::secure_getenv("HIPPOGRIFF_CUDA_DRIVER");
  return chosen == nullptr ? default_library : chosen;
}

// Never destroyed: threads may still call the driver while the process exits.
const CudaDriverLoad& process_load() noexcept {
  static const auto* const load = new (std::nothrow) CudaDriverLoad([]() noexcept {
    try {
      return load_cuda_driver(chosen_library());
    } catch (...) {
      CudaDriverLoad none;
      none.presence.why_not = "out of memory";
      return none;
    }
  }());
  static const CudaDriverLoad none;
  return load == nullptr ? none : *load;
}

}  // namespace

bool CudaDriver::usable() const noexcept {
  return ::getpid() == process;
}

std::string CudaDriver::describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr) {
    return "unknown CUDA error " + std::to_string(static_cast<int>(result));
  }
  if (get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) {
    return name;
  }
  return std::string(name) + ": " + text;
}

CudaDriverLoad load_cuda_driver(const std::string& library_file) {
  CudaDriverLoad load;
  if (library_file.empty()) {
    load.presence.why_not = "CUDA is switched off by an empty HIPPOGRIFF_CUDA_DRIVER";
    return load;
  }
  auto driver = std::make_unique<CudaDriver>();
  driver->handle = ::dlopen(library_file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver->handle == nullptr) {
    load.presence.why_not = "the CUDA driver cannot be opened (" + loader_error() +
                            "): install the NVIDIA driver, or give the container its GPUs";
    return load;
  }
  load.presence.driver_version = driver_version(driver->handle);
  const char* missing = bind(*driver);
  if (load.presence.driver_version < cuda_driver_version_min || missing != nullptr) {
    load.presence.why_not = "the CUDA driver in " + library_file + " supports CUDA " +
                            version_text(load.presence.driver_version) +
                            (missing == nullptr ? "" : std::string(" and lacks ") + missing) +
                            "; " + version_text(cuda_driver_version_min) +
                            " or newer is needed: update the NVIDIA driver";
    return load;
  }
  load.presence.why_not = initialize(*driver, load.presence.device_count);
  if (load.presence.why_not.empty()) {
    load.driver = std::move(driver);
  }
  return load;
}

bool cuda_driver_is_loaded() noexcept {
  const char* library = chosen_library();
  void* const handle = *library == '\0' ? nullptr : ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return handle != nullptr && ::dlclose(handle) == 0;
}

const CudaDriver* cuda_driver() noexcept {
  const CudaDriver* driver = process_load().driver.get();
  return driver != nullptr && driver->usable() ? driver : nullptr;
}

const CudaPresence& cuda_presence() noexcept {
  const CudaDriverLoad& load = process_load();
  if (load.driver == nullptr || load.driver->usable()) {
    return load.presence;
  }
  static const auto* const forked = new (std::nothrow) CudaPresence{
      0,
      "this process was forked after CUDA was initialized, where CUDA does not work: start the "
      "child with exec (Python: multiprocessing's spawn start method)",
      load.presence.driver_version,
      true};
  return forked == nullptr ? load.presence : *forked;
}

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
