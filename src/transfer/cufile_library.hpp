// libcufile, found at run time, and whether GPUDirect Storage is real on this machine. The types
// are cuFile's binary interface, declared here so that no header of it is needed to build.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

namespace hippogriff {

// --- the binary interface of libcufile.so.0 ---

struct CuFileResult {
  int error;        // 0, or 5000 + one of cuFile's reasons
  int cuda_result;  // CUresult, when error is 5011
};

struct CuFileDescriptor {
  int type = 1;  // a file descriptor

  union {
    int fd;
    void* pointer = nullptr;
  };

  const void* operations = nullptr;
};

struct CuFileProperties {
  unsigned nvfs_major = 0;  // 0: nvidia-fs is not loaded
  unsigned nvfs_minor = 0;
  std::size_t poll_threshold = 0;
  std::size_t direct_io_kib_max = 0;
  unsigned status_flags = 0;
  unsigned control_flags = 0;
  unsigned feature_flags = 0;
  unsigned limits[5] = {};
  char later_versions[128] = {};  // room for fields that a newer library may write
};

static_assert(sizeof(CuFileResult) == 8);
static_assert(sizeof(CuFileDescriptor) == 24 && offsetof(CuFileDescriptor, fd) == 8);
static_assert(offsetof(CuFileProperties, control_flags) == 28 &&
              offsetof(CuFileProperties, feature_flags) == 32);

inline constexpr unsigned cufile_control_compatibility = 1U << 1U;
inline constexpr unsigned cufile_feature_p2pdma = 1U << 4U;
inline constexpr int cufile_parameter_allow_compatibility = 1;
inline constexpr int cufile_parameter_use_p2pdma = 7;
inline constexpr int cufile_error_already_open = 5026;

// The functions of an open driver. Immutable; never unloaded, the driver is never closed.
struct CuFileLibrary {
  CuFileResult (*driver_open)() = nullptr;
  CuFileResult (*driver_get_properties)(CuFileProperties*) = nullptr;
  CuFileResult (*handle_register)(void** handle, CuFileDescriptor*) = nullptr;
  void (*handle_deregister)(void* handle) = nullptr;
  ssize_t (*read)(void* handle,
                  void* base,
                  std::size_t size_bytes,
                  off_t offset,
                  off_t device_offset) = nullptr;
  ssize_t (*write)(void* handle,
                   const void* base,
                   std::size_t size_bytes,
                   off_t offset,
                   off_t device_offset) = nullptr;
  // Absent from older libraries.
  long (*use_count)() = nullptr;
  CuFileResult (*set_parameter_bool)(int parameter, bool value) = nullptr;
};

// "5008, not supported for this file"
std::string describe_cufile_error(int error);

// --- whether it is real ---

struct GdsPresence {
  bool real = false;
  std::string why_not;  // what is missing and what to do, when it is not
};

// The facts the answer rests on. `root` stands before /dev, /proc, /boot and /lib.
struct GdsMachine {
  std::string root;
  std::string kernel_release;  // "6.8.0-40-generic"
  std::string cufile = "libcufile.so.0";
  std::string why_no_cuda;        // "" when there are CUDA devices
  bool needs_static_bar1 = true;  // x86-64: the GPU's memory must be mapped whole
};

struct CuFileLoad {
  std::unique_ptr<CuFileLibrary> functions;  // null unless presence.real
  GdsPresence presence;
};

// Looks at the machine first and opens the cuFile driver only where nvidia-fs is loaded or PCI
// P2PDMA is configured: an opening that fails can leave the process unable to use cuFile, and in
// places CUDA. Switches off cuFile's compatibility mode, which would copy through host memory,
// unless somebody in this process opened cuFile before. Throws only std::bad_alloc.
CuFileLoad load_cufile(const GdsMachine& machine);

// This machine: $HIPPOGRIFF_CUFILE names another library, $HIPPOGRIFF_GDS_ROOT another root.
GdsMachine this_gds_machine();

// This process's answer, found at the first call. Thread-safe.
const GdsPresence& gds_presence() noexcept;

// Null unless gds_presence().real.
const CuFileLibrary* cufile_library() noexcept;

}  // namespace hippogriff
