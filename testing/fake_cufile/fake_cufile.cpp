// The functions of libcufile that hippogriff loads, over ordinary files and memory.
#include "transfer/cufile_library.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <string>

#define HIPPO_FAKE_API extern "C" __attribute__((visibility("default")))

using hippogriff::CuFileDescriptor;
using hippogriff::CuFileProperties;
using hippogriff::CuFileResult;

namespace {

struct State {
  std::mutex mutex;
  std::map<std::string, int> values;
  std::set<int> descriptors;  // registered now
};

State& state() {
  static State instance;
  return instance;
}

int value_of(const char* what) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().values.find(what);
  return found == state().values.end() ? 0 : found->second;
}

void set_value(const char* what, int value) {
  const std::lock_guard lock(state().mutex);
  state().values[what] = value;
}

// The real library takes unaligned requests, so this one works on a buffered description.
struct Handle {
  int registered_fd;
  int fd;
};

template <typename Move>
ssize_t move_bytes(std::size_t size_bytes, Move move) {
  const int result = value_of("io_result");
  if (result != 0) {
    errno = value_of("io_errno");
    return result;
  }
  const int most = value_of("io_bytes_max");
  return move(most == 0 ? size_bytes : std::min(size_bytes, static_cast<std::size_t>(most)));
}

}  // namespace

// The names are the library's.
// NOLINTBEGIN(readability-identifier-naming)

HIPPO_FAKE_API CuFileResult cuFileDriverOpen() {
  set_value("opens", value_of("opens") + 1);
  return {value_of("open_result"), 0};
}

HIPPO_FAKE_API CuFileResult cuFileDriverGetProperties(CuFileProperties* properties) {
  properties->nvfs_major = static_cast<unsigned>(value_of("nvfs_major"));
  properties->feature_flags = static_cast<unsigned>(value_of("feature_flags"));
  properties->control_flags = static_cast<unsigned>(value_of("control_flags"));
  return {value_of("properties_result"), 0};
}

HIPPO_FAKE_API long cuFileUseCount() {
  return value_of("use_count");
}

HIPPO_FAKE_API CuFileResult cuFileSetParameterBool(int parameter, bool value) {
  if (parameter == hippogriff::cufile_parameter_use_p2pdma) {
    set_value("p2pdma_wanted", value ? 1 : 0);
  }
  if (parameter == hippogriff::cufile_parameter_allow_compatibility &&
      value_of("ignores_parameters") == 0) {
    const int flag = static_cast<int>(hippogriff::cufile_control_compatibility);
    set_value("control_flags",
              value ? value_of("control_flags") | flag : value_of("control_flags") & ~flag);
  }
  return {};
}

HIPPO_FAKE_API CuFileResult cuFileHandleRegister(void** handle, CuFileDescriptor* descriptor) {
  if (const int error = value_of("register_result"); error != 0) {
    return {error, 0};
  }
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor->fd);
  const int access = ::fcntl(descriptor->fd, F_GETFL) & O_ACCMODE;
  const int fd = ::open(path.c_str(), access | O_CLOEXEC);
  if (fd < 0) {
    return {5018, 0};
  }
  const std::lock_guard lock(state().mutex);
  if (!state().descriptors.insert(descriptor->fd).second) {
    ::close(fd);
    return {5028, 0};
  }
  *handle = new Handle{descriptor->fd, fd};
  return {};
}

HIPPO_FAKE_API void cuFileHandleDeregister(void* opaque) {
  auto* handle = static_cast<Handle*>(opaque);
  ::close(handle->fd);
  const std::lock_guard lock(state().mutex);
  state().descriptors.erase(handle->registered_fd);
  delete handle;
}

HIPPO_FAKE_API ssize_t
cuFileRead(void* handle, void* base, std::size_t size_bytes, off_t offset, off_t device_offset) {
  return move_bytes(size_bytes, [&](std::size_t count) {
    return ::pread(
        static_cast<Handle*>(handle)->fd, static_cast<char*>(base) + device_offset, count, offset);
  });
}

HIPPO_FAKE_API ssize_t cuFileWrite(
    void* handle, const void* base, std::size_t size_bytes, off_t offset, off_t device_offset) {
  return move_bytes(size_bytes, [&](std::size_t count) {
    return ::pwrite(static_cast<Handle*>(handle)->fd,
                    static_cast<const char*>(base) + device_offset,
                    count,
                    offset);
  });
}

// NOLINTEND(readability-identifier-naming)

HIPPO_FAKE_API void fake_cufile_reset() {
  const std::lock_guard lock(state().mutex);
  state().values.clear();
}

HIPPO_FAKE_API void fake_cufile_set(const char* what, int value) {
  set_value(what, value);
}

HIPPO_FAKE_API int fake_cufile_count(const char* what) {
  if (std::string(what) == "handles") {
    const std::lock_guard lock(state().mutex);
    return static_cast<int>(state().descriptors.size());
  }
  return value_of(what);
}
