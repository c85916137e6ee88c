// Reads and writes through cuFile, whole ranges at a time.
#include "transfer/cufile.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hippogriff {
namespace {

constexpr ssize_t cufile_error_base = 5000;

const CuFileLibrary& library_or_throw() {
  const CuFileLibrary* library = cufile_library();
  if (library == nullptr) {
    throw_unsupported("register with cuFile", gds_presence().why_not);
  }
  return *library;
}

// Repeats `step` (bytes done so far -> bytes moved) until the range is through. Returns how far it
// came, with the last result: 0 at the end of the file, negative for a failure.
template <typename Step>
std::pair<std::uint64_t, ssize_t> move_all(std::uint64_t size_bytes, Step step) {
  std::uint64_t done_bytes = 0;
  while (done_bytes < size_bytes) {
    const ssize_t result = step(done_bytes);
    if (result == -1 && errno == EINTR) {
      continue;
    }
    if (result <= 0) {
      return {done_bytes, result};
    }
    done_bytes += static_cast<std::uint64_t>(result);
  }
  return {done_bytes, 1};
}

void* pointer_to(DeviceAddress address) {
  return reinterpret_cast<void*>(address.value);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

CuFile::CuFile(File& file) : CuFile(library_or_throw(), file) {}

CuFile::CuFile(const CuFileLibrary& library, File& file)
    : library_(library), path_(file.facts().path) {
  // cuFile registers a descriptor once, and several lanes may read the same file.
  fd_ = ::fcntl(file.direct_fd(), F_DUPFD_CLOEXEC, 0);
  if (fd_ < 0) {
    throw_io("duplicate the descriptor", path_, no_offset, errno);
  }
  CuFileDescriptor descriptor;
  descriptor.fd = fd_;
  const CuFileResult result = library_.handle_register(&handle_, &descriptor);
  if (result.error != 0) {
    ::close(fd_);
    Failure failure;
    failure.status = Status::unsupported;
    failure.operation = "register with cuFile";
    failure.object = path_;
    failure.device_status = result.cuda_result;
    failure.detail = describe_cufile_error(result.error);
    throw Error(std::move(failure));
  }
}

CuFile::~CuFile() {
  library_.handle_deregister(handle_);
  ::close(fd_);
}

void CuFile::fail(const char* operation,
                  ssize_t result,
                  int errno_value,
                  std::uint64_t offset) const {
  if (result == -1) {
    throw_io(operation, path_, offset, errno_value);
  }
  Failure failure;
  failure.operation = operation;
  failure.object = path_;
  failure.offset = offset;
  if (result == 0) {
    failure.status = Status::short_file;
    failure.detail = "the file ends here";
  } else if (result < -cufile_error_base) {
    failure.status = Status::device_error;
    failure.detail = describe_cufile_error(static_cast<int>(-result));
  } else {
    failure.status = Status::io_error;
    failure.errno_value = static_cast<int>(-result);
  }
  throw Error(std::move(failure));
}

void CuFile::read(Range range, DeviceAddress base, std::uint64_t device_offset) {
  const auto [done_bytes, result] = move_all(range.size, [&](std::uint64_t done) {
    return library_.read(handle_,
                         pointer_to(base),
                         range.size - done,
                         static_cast<off_t>(range.offset + done),
                         static_cast<off_t>(device_offset + done));
  });
  if (result <= 0) {
    fail("cuFile read", result, errno, range.offset + done_bytes);
  }
}

void CuFile::write(Range range, DeviceAddress base, std::uint64_t device_offset) {
  const auto [done_bytes, result] = move_all(range.size, [&](std::uint64_t done) {
    return library_.write(handle_,
                          pointer_to(base),
                          range.size - done,
                          static_cast<off_t>(range.offset + done),
                          static_cast<off_t>(device_offset + done));
  });
  if (result == 0) {
    throw_io("cuFile write", path_, range.offset + done_bytes, EIO);
  }
  if (result < 0) {
    fail("cuFile write", result, errno, range.offset + done_bytes);
  }
}

}  // namespace hippogriff
