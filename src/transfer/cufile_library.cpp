// Decides in careful order whether GPUDirect Storage is real: kernel and driver, library,
// properties.
#include "transfer/cufile_library.hpp"

#include "device/cuda_device.hpp"

#include <dlfcn.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

namespace hippogriff {
namespace {

constexpr std::pair<int, int> p2pdma_kernel_min{6, 2};

struct NamedError {
  int error;
  const char* text;
};

constexpr std::array error_texts = {
    NamedError{5001, "the driver is not open"},
    NamedError{5004, "nvidia-fs and libcufile are of different versions"},
    NamedError{5005, "the version of nvidia-fs cannot be read"},
    NamedError{5007, "not supported on this platform"},
    NamedError{5008, "not supported for this file"},
    NamedError{5009, "not supported by this GPU"},
    NamedError{5010, "nvidia-fs refused"},
    NamedError{5011, "a CUDA call failed"},
    NamedError{5012, "the address is not device memory"},
    NamedError{5014, "the range leaves its allocation"},
    NamedError{5015, "the address is of another CUDA context"},
    NamedError{5018, "not a file it can read"},
    NamedError{5019, "the file is open in a way it cannot use"},
    NamedError{5020, "the file is not open with O_DIRECT"},
    NamedError{5022, "an argument is invalid"},
    NamedError{5025, "permission denied"},
    NamedError{5026, "the driver is already open"},
    NamedError{5027, "the file is not registered"},
    NamedError{5028, "the file is already registered"},
    NamedError{5029, "the GPU was not found"},
    NamedError{5030, "an internal error"},
    NamedError{5033, "nvidia-fs cannot be set up"},
    NamedError{5034, "switched off for this file in cufile.json"},
    NamedError{5036, "GPU memory cannot be pinned"},
};

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  return std::search(text.begin(), text.end(), part.begin(), part.end(), [](char a, char b) {
           return std::tolower(static_cast<unsigned char>(a)) ==
                  std::tolower(static_cast<unsigned char>(b));
         }) != text.end();
}

// Whether a line of the file holds the text; nothing when the file cannot be read.
std::optional<bool> file_has(const std::string& path, std::string_view part) {
  std::ifstream file(path);
  std::string line;
  bool read = false;
  while (std::getline(file, line)) {
    read = true;
    if (contains_ignoring_case(line, part)) {
      return true;
    }
  }
  return read ? std::optional(false) : std::nullopt;
}

bool kernel_is_new_enough(const std::string& release) {
  char* end = nullptr;
  const long major = std::strtol(release.c_str(), &end, 10);
  const long minor = *end == '.' ? std::strtol(end + 1, nullptr, 10) : 0;
  return std::pair(major, minor) >= std::pair<long, long>(p2pdma_kernel_min);
}

// Whether the kernel was built with PCI P2PDMA; nothing when it does not tell.
std::optional<bool> kernel_has_p2pdma(const GdsMachine& machine) {
  for (const std::string& file : {"/boot/config-" + machine.kernel_release,
                                  "/lib/modules/" + machine.kernel_release + "/config"}) {
    const auto configured = file_has(machine.root + file, "CONFIG_PCI_P2PDMA=y");
    if (configured) {
      return configured;
    }
  }
  return file_has(machine.root + "/proc/kallsyms", "p2pdma_pgmap_ops");
}

// Why PCI P2PDMA cannot work here, "" when it may. Cheap questions first: kallsyms is megabytes.
std::string why_no_p2pdma(const GdsMachine& machine) {
  if (!kernel_is_new_enough(machine.kernel_release)) {
    return "needs Linux 6.2 or newer, this is " + machine.kernel_release;
  }
  if (machine.needs_static_bar1) {
    const auto mapped =
        file_has(machine.root + "/proc/driver/nvidia/params", "RMForceStaticBar1=1");
    if (!mapped) {
      return "needs the nvidia kernel module, whose parameters cannot be read";
    }
    if (!*mapped) {
      return "needs the nvidia kernel module loaded with "
             "NVreg_RegistryDwords=\"RMForceStaticBar1=1;RmForceDisableIomapWC=1;\" "
             "(in /etc/modprobe.d)";
    }
  }
  const auto built_in = kernel_has_p2pdma(machine);
  if (!built_in) {
    return "needs a kernel with CONFIG_PCI_P2PDMA, and this one does not tell (no readable "
           "/boot/config or /proc/kallsyms)";
  }
  return *built_in ? "" : "needs a kernel built with CONFIG_PCI_P2PDMA";
}

// Stores a function; false when the library does not have it.
template <typename Function>
bool bind(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

// Returns the name of a function that is missing, else nullptr.
const char* bind_all(void* library, CuFileLibrary& functions) {
  bind(library, "cuFileUseCount", functions.use_count);
  bind(library, "cuFileSetParameterBool", functions.set_parameter_bool);
  if (!bind(library, "cuFileDriverOpen", functions.driver_open)) {
    return "cuFileDriverOpen";
  }
  if (!bind(library, "cuFileDriverGetProperties", functions.driver_get_properties)) {
    return "cuFileDriverGetProperties";
  }
  if (!bind(library, "cuFileHandleRegister", functions.handle_register)) {
    return "cuFileHandleRegister";
  }
  if (!bind(library, "cuFileHandleDeregister", functions.handle_deregister)) {
    return "cuFileHandleDeregister";
  }
  if (!bind(library, "cuFileRead", functions.read)) {
    return "cuFileRead";
  }
  return bind(library, "cuFileWrite", functions.write) ? nullptr : "cuFileWrite";
}

// Asks for real transfers only, where nobody else has set cuFile up in this process.
void forbid_compatibility(const CuFileLibrary& library, bool has_nvidia_fs) {
  if (library.use_count == nullptr || library.set_parameter_bool == nullptr ||
      library.use_count() > 0) {
    return;
  }
  // What came of it is seen in the driver's properties.
  static_cast<void>(library.set_parameter_bool(cufile_parameter_allow_compatibility, false));
  if (!has_nvidia_fs) {
    static_cast<void>(library.set_parameter_bool(cufile_parameter_use_p2pdma, true));
  }
}

// Opens the driver and reads its properties; returns why it is not real, "" when it is.
std::string open_driver(const CuFileLibrary& library) {
  CuFileResult result = library.driver_open();
  if (result.error != 0 && result.error != cufile_error_already_open) {
    return "cuFile's driver does not open (" + describe_cufile_error(result.error) +
           "): check /etc/cufile.json and gdscheck -p";
  }
  CuFileProperties properties;
  result = library.driver_get_properties(&properties);
  if (result.error != 0) {
    return "cuFile does not tell its properties (" + describe_cufile_error(result.error) + ")";
  }
  if (properties.nvfs_major == 0 && (properties.feature_flags & cufile_feature_p2pdma) == 0) {
    return "cuFile found neither nvidia-fs nor PCI P2PDMA usable here: check gdscheck -p";
  }
  if ((properties.control_flags & cufile_control_compatibility) != 0) {
    return "cuFile's compatibility mode is on, which may copy through host memory: set "
           "properties.allow_compat_mode to false in /etc/cufile.json";
  }
  return {};
}

CuFileLoad not_real(std::string why_not) {
  return {nullptr, {false, std::move(why_not)}};
}

const CuFileLoad& process_load() noexcept {
  static const CuFileLoad load = []() noexcept {
    try {
      return load_cufile(this_gds_machine());
    } catch (...) {
      return not_real("out of memory");
    }
  }();
  return load;
}

}  // namespace

std::string describe_cufile_error(int error) {
  const auto* found = std::find_if(error_texts.begin(),
                                   error_texts.end(),
                                   [error](const NamedError& one) { return one.error == error; });
  return "cuFile error " + std::to_string(error) +
         (found == error_texts.end() ? "" : std::string(", ") + found->text);
}

CuFileLoad load_cufile(const GdsMachine& machine) {
  if (!machine.why_no_cuda.empty()) {
    return not_real("GPUDirect Storage needs a CUDA device: " + machine.why_no_cuda);
  }
  const bool has_nvidia_fs = ::access((machine.root + "/dev/nvidia-fs0").c_str(), F_OK) == 0;
  if (!has_nvidia_fs) {
    const std::string why_not = why_no_p2pdma(machine);
    if (!why_not.empty()) {
      return not_real(
          "GPUDirect Storage is not set up: the nvidia-fs module is not loaded, and PCI P2PDMA " +
          why_not);
    }
  }
  void* library = ::dlopen(machine.cufile.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* text = ::dlerror();  // NOLINT(concurrency-mt-unsafe): thread-local in glibc
    return not_real("cuFile's library cannot be opened (" +
                    std::string(text == nullptr ? machine.cufile : text) +
                    "): install libcufile (Debian: libcufile-13-0, PyPI: nvidia-cufile)");
  }
  auto functions = std::make_unique<CuFileLibrary>();
  if (const char* missing = bind_all(library, *functions); missing != nullptr) {
    return not_real(machine.cufile + " is not cuFile: it lacks " + missing);
  }
  forbid_compatibility(*functions, has_nvidia_fs);
  std::string why_not = open_driver(*functions);
  if (!why_not.empty()) {
    return not_real(std::move(why_not));
  }
  return {std::move(functions), {true, {}}};
}

GdsMachine this_gds_machine() {
  GdsMachine machine;
  utsname system{};
  if (::uname(&system) == 0) {
    machine.kernel_release = system.release;
  }
  if (const char* root = ::secure_getenv("HIPPOGRIFF_GDS_ROOT"); root != nullptr) {
    machine.root = root;
  }
  if (const char* library = ::secure_getenv("HIPPOGRIFF_CUFILE"); library != nullptr) {
    machine.cufile = library;
  }
  machine.why_no_cuda = cuda_presence().why_not;
#if !defined(__x86_64__)
  machine.needs_static_bar1 = false;
#endif
  return machine;
}

const GdsPresence& gds_presence() noexcept {
  return process_load().presence;
}

const CuFileLibrary* cufile_library() noexcept {
  return process_load().functions.get();
}

}  // namespace hippogriff
