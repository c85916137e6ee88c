// What can go wrong, said once: a status for programs, and everything a person needs to act on it.
#pragma once

#include <hippogriff/hippogriff.h>

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace hippogriff {

// The C ABI's codes under C++ names; the one list of statuses is hippogriff.h's.
enum class Status : std::int32_t {
  ok = HIPPOGRIFF_OK,
  invalid_argument = HIPPOGRIFF_INVALID_ARGUMENT,
  not_initialized = HIPPOGRIFF_NOT_INITIALIZED,
  forked = HIPPOGRIFF_FORKED,
  busy = HIPPOGRIFF_BUSY,
  unsupported = HIPPOGRIFF_UNSUPPORTED,
  io_error = HIPPOGRIFF_IO_ERROR,
  short_file = HIPPOGRIFF_SHORT_FILE,
  device_error = HIPPOGRIFF_DEVICE_ERROR,
  out_of_device_memory = HIPPOGRIFF_OUT_OF_DEVICE_MEMORY,
  out_of_host_memory = HIPPOGRIFF_OUT_OF_HOST_MEMORY,
  cancelled = HIPPOGRIFF_CANCELLED,
  timed_out = HIPPOGRIFF_TIMED_OUT,
  internal = HIPPOGRIFF_INTERNAL,
};

std::string_view status_name(Status status);

inline constexpr std::uint64_t no_offset = UINT64_MAX;

// A failure as data: what was tried, on what, where, and what the system answered.
struct Failure {
  Status status = Status::ok;
  std::string operation;             // "read", "copy to device"
  std::string object;                // path or device
  std::uint64_t offset = no_offset;  // bytes in the file
  int errno_value = 0;
  int device_status = 0;  // CUresult
  std::string detail;     // one more clause: sizes, what to do next

  [[nodiscard]] std::string message() const;
};

// The one exception type of the library. Catch it at module boundaries that promise a Status.
class Error : public std::exception {
 public:
  explicit Error(Failure failure);

  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

  [[nodiscard]] const Failure& failure() const noexcept { return failure_; }

 private:
  Failure failure_;
  std::string message_;
};

[[noreturn]] void throw_invalid(std::string operation, std::string detail);
// Where it is known what the caller meant: a path or a device.
[[noreturn]] void throw_invalid(std::string operation, std::string object, std::string detail);
[[noreturn]] void throw_io(std::string operation,
                           std::string object,
                           std::uint64_t offset,
                           int errno_value);
[[noreturn]] void throw_unsupported(std::string operation, std::string detail);

// Turns the exception in flight into a Failure; call from a catch block.
Failure current_failure() noexcept;

[[noreturn]] void assertion_failed(const char* expression, const char* file, int line) noexcept;

}  // namespace hippogriff

// Our bug, not the world's: kept in release builds, aborts with the expression and its place.
#define HIPPO_ASSERT(expression)       \
  ((expression) ? static_cast<void>(0) \
                : ::hippogriff::assertion_failed(#expression, __FILE__, __LINE__))
