// hippogriff for C++20: thin, inline, over the C interface of hippogriff.h; nothing more to link.
//
// Failures are exceptions: TransferError with all that the C interface tells. Objects may be used
// from any thread, one thread at a time each. All sizes and offsets are bytes.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_HIPPOGRIFF_HPP_
#define HIPPOGRIFF_HIPPOGRIFF_HPP_

#include <hippogriff/hippogriff.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace hippogriff {
// The C++ interface has a version of its own in its symbols: programs built with different headers
// can share a process.
inline namespace v0 {

// The rest of the file, or of the device memory.
inline constexpr std::size_t whole = 0;

// Why a call or a transfer failed. what() is the whole sentence.
class TransferError : public std::runtime_error {
 public:
  explicit TransferError(const hippogriff_error& error, std::vector<hippogriff_range> missing = {})
      : std::runtime_error(text(error.message)),
        status_(error.status),
        operation_(text(error.operation)),
        object_(text(error.object)),
        offset_(error.offset),
        errno_value_(error.errno_value),
        device_status_(error.device_status),
        missing_(std::move(missing)) {}

  [[nodiscard]] hippogriff_status status() const noexcept { return status_; }

  [[nodiscard]] const std::string& operation() const noexcept { return operation_; }

  // The path or the device.
  [[nodiscard]] const std::string& object() const noexcept { return object_; }

  // In the file; UINT64_MAX when there is none.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

  // 0 when it was not a system call.
  [[nodiscard]] int errno_value() const noexcept { return errno_value_; }

  // CUresult; 0 when it was not the device.
  [[nodiscard]] int device_status() const noexcept { return device_status_; }

  // The bytes of the extent, in file offsets, that are not where they should be.
  [[nodiscard]] const std::vector<hippogriff_range>& missing() const noexcept { return missing_; }

 private:
  static const char* text(const char* string) { return string != nullptr ? string : ""; }

  hippogriff_status status_;
  std::string operation_;
  std::string object_;
  std::uint64_t offset_;
  int errno_value_;
  int device_status_;
  std::vector<hippogriff_range> missing_;
};

namespace detail {

[[noreturn]] inline void throw_last_error() {
  hippogriff_error error{};
  hippogriff_last_error(&error);
  throw TransferError(error);
}

inline void check(int status) {
  if (status != HIPPOGRIFF_OK) {
    throw_last_error();
  }
}

inline const char* name_or_null(const std::string& name) {
  return name.empty() ? nullptr : name.c_str();
}

// -1 is for ever; anything shorter than a millisecond still waits one.
inline std::int64_t to_timeout_ms(std::chrono::nanoseconds timeout) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::max(timeout, {})).count();
}

// Takes over a string that the library allocated.
inline std::string take(char* string) {
  std::string copy = string;
  hippogriff_free_string(string);
  return copy;
}

}  // namespace detail

// Keeps the runtime started; deinit comes with the last one. Make one before anything else here and
// let it go after everything else: it cancels what is in flight and frees what send allocated.
class Runtime {
 public:
  Runtime() { detail::check(hippogriff_init()); }

  ~Runtime() {
    if (started_) {
      hippogriff_deinit();
    }
  }

  Runtime(Runtime&& other) noexcept : started_(std::exchange(other.started_, false)) {}

  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  Runtime& operator=(Runtime&&) = delete;

 private:
  bool started_ = true;
};

// Which file: a descriptor (duplicated by the call; the caller keeps theirs) or a path.
class FileName {
 public:
  // Implicit on purpose: functions below take either.
  // NOLINTBEGIN(google-explicit-constructor)
  FileName(int fd) : fd_(fd) {}

  FileName(std::filesystem::path path) : path_(std::move(path)) {}

  FileName(const char* path) : path_(path) {}

  FileName(const std::string& path) : path_(path) {}

  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool is_path() const { return fd_ == no_descriptor; }

  [[nodiscard]] int fd() const { return fd_; }

  [[nodiscard]] const char* path() const { return path_.c_str(); }

 private:
  static constexpr int no_descriptor = -2147483647;  // -1 is what a failed open returns

  int fd_ = no_descriptor;
  std::filesystem::path path_;
};

// How to carry out one transfer; what is left alone is the default.
struct Options {
  std::string device;  // "cuda:0", "host"; "": the memory's, else the current one
  hippogriff_route route = HIPPOGRIFF_ROUTE_AUTO;
  std::uint32_t flags = 0;  // of hippogriff_flags
  void* stream = nullptr;   // cudaStream_t, or Stream::native_handle
  // How long a send that allocates may wait for device memory: negative fails at once.
  std::optional<std::chrono::milliseconds> memory_timeout;
  // The most host memory, in bytes, that the transfer uses at one time; 0: no bound of its own.
  std::uint64_t host_memory = 0;
  // Sends of parts to host memory: gets XXH3 of each block of each part (hippogriff.h). It must
  // stay until the transfer is finished.
  std::span<std::uint64_t> checksums;
  std::uint64_t checksum_block_bytes = 0;

  // The same for C; it points into this object.
  [[nodiscard]] hippogriff_options to_c() const {
    hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
    options.device = detail::name_or_null(device);
    options.route = route;
    options.flags = flags;
    options.stream = stream;
    options.host_memory = host_memory;
    options.checksums = checksums.empty() ? nullptr : checksums.data();
    options.checksum_count = checksums.size();
    options.checksum_block_bytes = checksum_block_bytes;
    if (memory_timeout) {
      // In C zero is the default, so no time at all becomes "fail at once".
      options.memory_timeout_ms = memory_timeout->count() > 0 ? memory_timeout->count() : -1;
    }
    return options;
  }
};

// Device memory that is freed with the object. Move-only. Do not follow data() on the host, except
// on device `host`.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;

  explicit DeviceBuffer(std::size_t size_bytes, const std::string& device = {})
      : size_bytes_(size_bytes) {
    detail::check(hippogriff_malloc(detail::name_or_null(device), size_bytes, &data_));
  }

  // Takes over memory that hippogriff allocated.
  static DeviceBuffer adopt(void* data, std::size_t size_bytes) noexcept {
    DeviceBuffer buffer;
    buffer.data_ = data;
    buffer.size_bytes_ = size_bytes;
    return buffer;
  }

  // While a transfer uses the memory it cannot be freed: then Runtime's end does it.
  ~DeviceBuffer() { hippogriff_free(data_); }

  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}

  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }

  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  [[nodiscard]] void* data() const noexcept { return data_; }

  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

  // Frees now. Throws with HIPPOGRIFF_BUSY, and keeps the memory, while a transfer uses it.
  void free() {
    detail::check(hippogriff_free(data_));
    data_ = nullptr;
    size_bytes_ = 0;
  }

  // The caller frees it from now on, with hippogriff_free.
  [[nodiscard]] void* release() noexcept {
    size_bytes_ = 0;
    return std::exchange(data_, nullptr);
  }

  // Blocking copies. `offset` is in this buffer.
  template <class T, std::size_t Extent>
  void copy_from(std::span<T, Extent> host, std::size_t offset = 0) {
    static_assert(std::is_trivially_copyable_v<T>);
    check_range(offset, host.size_bytes());
    detail::check(hippogriff_copy_to_device(at(offset), host.data(), host.size_bytes()));
  }

  template <class T, std::size_t Extent>
  void copy_to(std::span<T, Extent> host, std::size_t offset = 0) const {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>);
    check_range(offset, host.size_bytes());
    detail::check(hippogriff_copy_to_host(host.data(), at(offset), host.size_bytes()));
  }

 private:
  [[nodiscard]] void* at(std::size_t offset) const {
    return static_cast<std::byte*>(data_) + offset;
  }

  void check_range(std::size_t offset, std::size_t size_bytes) const {
    if (offset > size_bytes_ || size_bytes > size_bytes_ - offset) {
      throw std::out_of_range("hippogriff::DeviceBuffer: bytes " + std::to_string(offset) + " to " +
                              std::to_string(offset + size_bytes) + " of " +
                              std::to_string(size_bytes_));
    }
  }

  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// Where a transfer goes to or comes from: an address in device memory and a size. Does not own it.
// A span may describe device memory (it is never followed); a span of ordinary host memory wants
// HIPPOGRIFF_HOST_MEMORY and device "host" in the options.
class DeviceSpan {
 public:
  // Implicit on purpose: functions below take any of these.
  // NOLINTBEGIN(google-explicit-constructor)
  DeviceSpan(const DeviceBuffer& buffer) : data_(buffer.data()), size_bytes_(buffer.size_bytes()) {}

  template <class T, std::size_t Extent>
  DeviceSpan(std::span<T, Extent> span) : data_(span.data()), size_bytes_(span.size_bytes()) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>);
  }

  // NOLINTEND(google-explicit-constructor)

  DeviceSpan(void* data, std::size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  [[nodiscard]] void* data() const noexcept { return data_; }

  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  void* data_;
  std::size_t size_bytes_;
};

namespace detail {

// In C size 0 means the rest of the file, which an empty span does not.
inline void check_not_empty(const DeviceSpan& span) {
  if (span.size_bytes() == 0) {
    throw std::invalid_argument("hippogriff: the device memory is empty");
  }
}

}  // namespace detail

// A transfer in flight or finished. Move-only. Destroying one in flight cancels it and waits until
// it has stopped, so that its memory may go after it; detach() lets it go on instead.
class Transfer {
 public:
  explicit Transfer(hippogriff_transfer* transfer) noexcept : transfer_(transfer) {}

  ~Transfer() { stop(); }

  Transfer(Transfer&& other) noexcept : transfer_(std::exchange(other.transfer_, nullptr)) {}

  Transfer& operator=(Transfer&& other) noexcept {
    if (this != &other) {
      stop();
      transfer_ = std::exchange(other.transfer_, nullptr);
    }
    return *this;
  }

  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Waits for the end. Throws TransferError when the transfer failed or was cancelled.
  void wait() { finish(hippogriff_wait(transfer_, -1)); }

  // The same, but returns false when the timeout ends first.
  [[nodiscard]] bool wait(std::chrono::nanoseconds timeout) {
    return finish(hippogriff_wait(transfer_, detail::to_timeout_ms(timeout)));
  }

  // recv: waits until the device memory may be reused; false when the timeout ends first.
  [[nodiscard]] bool wait_released(std::chrono::nanoseconds timeout) {
    return finish(hippogriff_wait_released(transfer_, detail::to_timeout_ms(timeout)));
  }

  void cancel() { detail::check(hippogriff_cancel(transfer_)); }

  [[nodiscard]] hippogriff_progress progress() const {
    hippogriff_progress progress{};
    detail::check(hippogriff_get_progress(transfer_, &progress));
    return progress;
  }

  [[nodiscard]] bool finished() const { return progress().finished != 0; }

  // The device address, or nullptr while there is none.
  [[nodiscard]] void* address() const { return hippogriff_address(transfer_); }

  // "pipelined", "mapped+pipelined": the routes that the bytes took. Only when finished.
  [[nodiscard]] std::string route() const {
    char* name = nullptr;
    detail::check(hippogriff_get_route(transfer_, &name));
    return detail::take(name);
  }

  // What happened, as JSON. Only when finished.
  [[nodiscard]] std::string report() const {
    char* json = nullptr;
    detail::check(hippogriff_get_report(transfer_, &json));
    return detail::take(json);
  }

  // The bytes that are not where they should be. Only when finished.
  [[nodiscard]] std::vector<hippogriff_range> missing() const {
    std::size_t count = 0;
    detail::check(hippogriff_get_missing(transfer_, nullptr, 0, &count));
    std::vector<hippogriff_range> ranges(count);
    detail::check(hippogriff_get_missing(transfer_, ranges.data(), ranges.size(), &count));
    return ranges;
  }

  // A descriptor that polls readable at the end; it belongs to this object.
  [[nodiscard]] int fd() const {
    int fd = -1;
    detail::check(hippogriff_get_fd(transfer_, &fd));
    return fd;
  }

  // Lets the transfer go on by itself: its memory must then stay until Runtime's end.
  void detach() noexcept { hippogriff_release(std::exchange(transfer_, nullptr)); }

  [[nodiscard]] hippogriff_transfer* get() const noexcept { return transfer_; }

 private:
  static constexpr std::int64_t stop_timeout_ms = 60'000;

  bool finish(int status) {
    if (status == HIPPOGRIFF_OK) {
      return true;
    }
    const bool timed_out = status == HIPPOGRIFF_TIMED_OUT;
    if (timed_out && !finished()) {
      return false;
    }
    hippogriff_error error{};
    detail::check(hippogriff_get_error(transfer_, &error));
    if (error.status != HIPPOGRIFF_OK) {
      throw TransferError(error, missing());
    }
    if (!timed_out) {  // then the call failed, not the transfer
      detail::throw_last_error();
    }
    return true;  // it finished after the wait had given up
  }

  void stop() noexcept {
    hippogriff_progress progress{};
    if (transfer_ != nullptr && hippogriff_get_progress(transfer_, &progress) == HIPPOGRIFF_OK &&
        progress.finished == 0) {
      hippogriff_cancel(transfer_);
      hippogriff_wait(transfer_, stop_timeout_ms);
    }
    hippogriff_release(transfer_);
    transfer_ = nullptr;
  }

  hippogriff_transfer* transfer_;
};

// Starts moving the file's bytes from `offset` on into device memory, as many as it holds.
inline Transfer send_async(const FileName& file,
                           DeviceSpan to,
                           std::size_t offset = 0,
                           const Options& options = {}) {
  detail::check_not_empty(to);
  const hippogriff_options c = options.to_c();
  hippogriff_transfer* transfer = nullptr;
  void* address = to.data();
  detail::check(file.is_path() ? hippogriff_send_path_async(
                                     file.path(), &address, offset, to.size_bytes(), &c, &transfer)
                               : hippogriff_send_async(
                                     file.fd(), &address, offset, to.size_bytes(), &c, &transfer));
  return Transfer(transfer);
}

// The same into device memory that it allocates: `size_bytes` of the file (`whole`: the rest of
// it). The memory is at address() once the transfer is finished, progress().bytes_total large, and
// the caller's: DeviceBuffer::adopt takes it over. A transfer that fails, or is dropped while it is
// in flight, leaves none; who drops a finished one without taking the memory has lost it.
inline Transfer send_async(const FileName& file,
                           std::size_t offset = 0,
                           std::size_t size_bytes = whole,
                           const Options& options = {}) {
  const hippogriff_options c = options.to_c();
  hippogriff_transfer* transfer = nullptr;
  void* address = nullptr;
  detail::check(
      file.is_path()
          ? hippogriff_send_path_async(file.path(), &address, offset, size_bytes, &c, &transfer)
          : hippogriff_send_async(file.fd(), &address, offset, size_bytes, &c, &transfer));
  return Transfer(transfer);
}

// Starts moving parts of an open file, each to memory of its own, as one transfer
// (hippogriff_sendv_async).
inline Transfer send_async(int fd,
                           std::span<const hippogriff_segment> parts,
                           const Options& options = {}) {
  const hippogriff_options c = options.to_c();
  hippogriff_transfer* transfer = nullptr;
  detail::check(hippogriff_sendv_async(fd, parts.data(), parts.size(), &c, &transfer));
  return Transfer(transfer);
}

// Starts moving device memory into the file from `offset` on. By path the file is replaced as a
// whole where the bytes cover all of it, as gullfoss_recv does, and with HIPPOGRIFF_REPLACE always.
inline Transfer recv_async(const FileName& file,
                           DeviceSpan from,
                           std::size_t offset = 0,
                           const Options& options = {}) {
  detail::check_not_empty(from);
  const hippogriff_options c = options.to_c();
  hippogriff_transfer* transfer = nullptr;
  detail::check(file.is_path()
                    ? hippogriff_recv_path_async(
                          file.path(), from.data(), offset, from.size_bytes(), &c, &transfer)
                    : hippogriff_recv_async(
                          file.fd(), from.data(), offset, from.size_bytes(), &c, &transfer));
  return Transfer(transfer);
}

// The same, waiting for the end.
inline void send(const FileName& file,
                 DeviceSpan to,
                 std::size_t offset = 0,
                 const Options& options = {}) {
  send_async(file, to, offset, options).wait();
}

inline void recv(const FileName& file,
                 DeviceSpan from,
                 std::size_t offset = 0,
                 const Options& options = {}) {
  recv_async(file, from, offset, options).wait();
}

// Begins to read `size_bytes` of the file (`whole`: the rest of it) into the page cache, for a send
// that will come: see hippogriff_prefetch.
inline void prefetch(const FileName& file, std::size_t offset = 0, std::size_t size_bytes = whole) {
  detail::check(file.is_path() ? hippogriff_prefetch_path(file.path(), offset, size_bytes)
                               : hippogriff_prefetch(file.fd(), offset, size_bytes));
}

// Moves `size_bytes` of the file (`whole`: the rest of it) into device memory that it allocates.
inline DeviceBuffer send(const FileName& file,
                         std::size_t offset = 0,
                         std::size_t size_bytes = whole,
                         const Options& options = {}) {
  Transfer transfer = send_async(file, offset, size_bytes, options);
  transfer.wait();
  return DeviceBuffer::adopt(transfer.address(), transfer.progress().bytes_total);
}

// XXH3 (64 bits, seed 0) of each `block_bytes` of memory, computed where it is; waits. Of the
// options only device, stream, HIPPOGRIFF_AFTER_STREAM and HIPPOGRIFF_HOST_MEMORY count.
inline std::vector<std::uint64_t> checksum(DeviceSpan of,
                                           std::size_t block_bytes,
                                           const Options& options = {}) {
  const hippogriff_options c = options.to_c();
  const hippogriff_memory part{of.data(), of.size_bytes()};
  const std::size_t whole_blocks = block_bytes == 0 ? 0 : of.size_bytes() / block_bytes;
  std::vector<std::uint64_t> checksums(whole_blocks +
                                       (whole_blocks * block_bytes < of.size_bytes() ? 1 : 0));
  detail::check(hippogriff_checksum(&part, 1, block_bytes, &c, checksums.data(), checksums.size()));
  return checksums;
}

// Work in order on a device, for programs without CUDA. Move-only; destroying it waits for the work
// that is on it, as hippogriff_stream_destroy does.
class Stream {
 public:
  explicit Stream(std::string device = {}) : device_(std::move(device)) {
    detail::check(hippogriff_stream_create(detail::name_or_null(device_), &stream_));
  }

  ~Stream() {
    if (stream_ != nullptr) {
      hippogriff_stream_destroy(detail::name_or_null(device_), stream_);
    }
  }

  Stream(Stream&& other) noexcept
      : device_(std::move(other.device_)), stream_(std::exchange(other.stream_, nullptr)) {}

  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  Stream& operator=(Stream&&) = delete;

  // Runs `function(argument)` when the work before it is done. It must not call hippogriff.
  void launch(void (*function)(void*), void* argument) {
    detail::check(
        hippogriff_stream_launch(detail::name_or_null(device_), stream_, function, argument));
  }

  // Returns false when the timeout ends first.
  [[nodiscard]] bool synchronize(std::chrono::nanoseconds timeout) {
    const int status = hippogriff_stream_synchronize(
        detail::name_or_null(device_), stream_, detail::to_timeout_ms(timeout));
    if (status == HIPPOGRIFF_TIMED_OUT) {
      return false;
    }
    detail::check(status);
    return true;
  }

  [[nodiscard]] void* native_handle() const noexcept { return stream_; }

 private:
  std::string device_;
  void* stream_ = nullptr;
};

}  // namespace v0
}  // namespace hippogriff

#endif  // HIPPOGRIFF_HIPPOGRIFF_HPP_
