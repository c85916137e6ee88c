// Failures as sentences: the names of statuses, errno values and CUDA results.
#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

namespace hippogriff {

namespace {

struct NamedCode {
  int code;
  const char* name;
};

// The CUresults a runtime that copies, allocates and synchronises meets. The numbers are CUDA's
// ABI; they stand here so that no CUDA header is needed to explain a failure.
constexpr std::array cuda_result_names = {
    NamedCode{1, "CUDA_ERROR_INVALID_VALUE"},
    NamedCode{2, "CUDA_ERROR_OUT_OF_MEMORY"},
    NamedCode{3, "CUDA_ERROR_NOT_INITIALIZED"},
    NamedCode{4, "CUDA_ERROR_DEINITIALIZED"},
    NamedCode{34, "CUDA_ERROR_STUB_LIBRARY"},
    NamedCode{46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    NamedCode{100, "CUDA_ERROR_NO_DEVICE"},
    NamedCode{101, "CUDA_ERROR_INVALID_DEVICE"},
    NamedCode{200, "CUDA_ERROR_INVALID_IMAGE"},
    NamedCode{201, "CUDA_ERROR_INVALID_CONTEXT"},
    NamedCode{205, "CUDA_ERROR_MAP_FAILED"},
    NamedCode{206, "CUDA_ERROR_UNMAP_FAILED"},
    NamedCode{209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    NamedCode{214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
    NamedCode{217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
    NamedCode{220, "CUDA_ERROR_NVLINK_UNCORRECTABLE"},
    NamedCode{300, "CUDA_ERROR_INVALID_SOURCE"},
    NamedCode{302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND"},
    NamedCode{303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED"},
    NamedCode{304, "CUDA_ERROR_OPERATING_SYSTEM"},
    NamedCode{400, "CUDA_ERROR_INVALID_HANDLE"},
    NamedCode{401, "CUDA_ERROR_ILLEGAL_STATE"},
    NamedCode{500, "CUDA_ERROR_NOT_FOUND"},
    NamedCode{600, "CUDA_ERROR_NOT_READY"},
    NamedCode{700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    NamedCode{701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    NamedCode{702, "CUDA_ERROR_LAUNCH_TIMEOUT"},
    NamedCode{709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
    NamedCode{710, "CUDA_ERROR_ASSERT"},
    NamedCode{712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
    NamedCode{713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
    NamedCode{714, "CUDA_ERROR_HARDWARE_STACK_ERROR"},
    NamedCode{715, "CUDA_ERROR_ILLEGAL_INSTRUCTION"},
    NamedCode{716, "CUDA_ERROR_MISALIGNED_ADDRESS"},
    NamedCode{719, "CUDA_ERROR_LAUNCH_FAILED"},
    NamedCode{800, "CUDA_ERROR_NOT_PERMITTED"},
    NamedCode{801, "CUDA_ERROR_NOT_SUPPORTED"},
    NamedCode{802, "CUDA_ERROR_SYSTEM_NOT_READY"},
    NamedCode{803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    NamedCode{804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"},
    NamedCode{900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    NamedCode{906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
    NamedCode{999, "CUDA_ERROR_UNKNOWN"},
};

std::string cuda_reason(int result) {
  const auto* const named =
      std::find_if(cuda_result_names.begin(), cuda_result_names.end(), [result](NamedCode entry) {
        return entry.code == result;
      });
  const bool known = named != cuda_result_names.end();
  return std::string(known ? named->name : "CUDA error") + " (" + std::to_string(result) + ")";
}

std::string errno_reason(int errno_value) {
  const char* const text = strerrordesc_np(errno_value);
  const char* const name = strerrorname_np(errno_value);
  std::string reason = text != nullptr ? text : "Unknown error";
  reason += " (errno " + std::to_string(errno_value);
  if (name != nullptr) {
    reason += std::string(", ") + name;
  }
  return reason + ")";
}

// What the system or the device answered; the status too where the answer does not imply it.
std::string reason_of(const Failure& failure) {
  std::string reason;
  const auto add = [&reason](const std::string& clause) {
    reason += (reason.empty() ? "" : ": ") + clause;
  };
  const bool status_is_implied =
      (failure.status == Status::io_error && failure.errno_value != 0) ||
      (failure.status == Status::device_error && failure.device_status != 0);
  if (!status_is_implied) {
    add(std::string(status_name(failure.status)));
  }
  if (failure.device_status != 0) {
    add(cuda_reason(failure.device_status));
  }
  if (failure.errno_value != 0) {
    add(errno_reason(failure.errno_value));
  }
  return reason;
}

bool is_errno(const std::error_code& code) {
  return code.category() == std::system_category() || code.category() == std::generic_category();
}

}  // namespace

std::string_view status_name(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::invalid_argument:
      return "invalid argument";
    case Status::not_initialized:
      return "not initialized";
    case Status::forked:
      return "forked after init";
    case Status::busy:
      return "busy";
    case Status::unsupported:
      return "unsupported";
    case Status::io_error:
      return "input/output error";
    case Status::short_file:
      return "file too short";
    case Status::device_error:
      return "device error";
    case Status::out_of_device_memory:
      return "out of device memory";
    case Status::out_of_host_memory:
      return "out of host memory";
    case Status::cancelled:
      return "cancelled";
    case Status::timed_out:
      return "timed out";
    case Status::internal:
      return "internal error";
  }
  return "unknown status";
}

std::string Failure::message() const {
  std::string text = operation;
  if (!object.empty()) {
    text += (text.empty() ? "" : " ") + object;
  }
  if (offset != no_offset) {
    text += " at offset " + std::to_string(offset);
  }
  text += (text.empty() ? "" : ": ") + reason_of(*this);
  if (!detail.empty()) {
    text += "; " + detail;
  }
  return text;
}

Error::Error(Failure failure) : failure_(std::move(failure)), message_(failure_.message()) {}

void throw_invalid(std::string operation, std::string detail) {
  throw_invalid(std::move(operation), {}, std::move(detail));
}

void throw_invalid(std::string operation, std::string object, std::string detail) {
  throw Error({.status = Status::invalid_argument,
               .operation = std::move(operation),
               .object = std::move(object),
               .detail = std::move(detail)});
}

void throw_io(std::string operation, std::string object, std::uint64_t offset, int errno_value) {
  throw Error({.status = Status::io_error,
               .operation = std::move(operation),
               .object = std::move(object),
               .offset = offset,
               .errno_value = errno_value,
               .detail = {}});
}

void throw_unsupported(std::string operation, std::string detail) {
  throw Error({.status = Status::unsupported,
               .operation = std::move(operation),
               .object = {},
               .detail = std::move(detail)});
}

Failure current_failure() noexcept {
  Failure failure;
  // Copying the texts can itself run out of memory: the status must survive that.
  try {
    try {
      throw;
    } catch (const Error& error) {
      failure.status = error.failure().status;
      failure = error.failure();
    } catch (const std::bad_alloc&) {
      failure.status = Status::out_of_host_memory;
    } catch (const std::system_error& error) {
      failure.status = is_errno(error.code()) ? Status::io_error : Status::internal;
      failure.errno_value = is_errno(error.code()) ? error.code().value() : 0;
      failure.detail = error.what();
    } catch (const std::exception& error) {
      failure.status = Status::internal;
      failure.detail = error.what();
    } catch (...) {
      failure.status = Status::internal;
      failure.detail = "an exception of unknown type";
    }
  } catch (...) {
    if (failure.status == Status::ok) {
      failure.status = Status::out_of_host_memory;
    }
  }
  return failure;
}

void assertion_failed(const char* expression, const char* file, int line) noexcept {
  static_cast<void>(
      std::fprintf(stderr, "hippogriff: assertion failed: %s (%s:%d)\n", expression, file, line));
  std::abort();
}

}  // namespace hippogriff
