// A file as GPUDirect Storage sees it: bytes between the drive and device memory, no host between.
#pragma once

#include "base/range.hpp"
#include "device/device.hpp"
#include "storage/storage.hpp"
#include "transfer/cufile_library.hpp"

namespace hippogriff {

// A file registered with cuFile; it keeps a descriptor of its own, so several may stand for one
// file. Thread-safe. The CUDA device of the addresses must be current on the calling thread.
class CuFile {
 public:
  // Throws Error(unsupported) where GPUDirect Storage is not real, for the machine or for this
  // file, and Error(io_error) when the file has no O_DIRECT descriptor to give.
  explicit CuFile(File& file);
  CuFile(const CuFileLibrary& library, File& file);
  ~CuFile();
  CuFile(const CuFile&) = delete;
  CuFile& operator=(const CuFile&) = delete;

  // Moves the whole range of the file to or from device memory, at `device_offset` bytes from
  // `base`. Throws Error(short_file) where the file ends first, Error(io_error, device_error).
  void read(Range range, DeviceAddress base, std::uint64_t device_offset);
  void write(Range range, DeviceAddress base, std::uint64_t device_offset);

 private:
  [[noreturn]] void fail(const char* operation,
                         ssize_t result,
                         int errno_value,
                         std::uint64_t offset) const;

  const CuFileLibrary& library_;
  std::string path_;
  int fd_ = -1;
  void* handle_ = nullptr;
};

}  // namespace hippogriff
