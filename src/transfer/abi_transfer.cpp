// The C functions that move data: the papers' interface, Gullfoss's forms, asynchronous handles.
#include "checksum/landing_checksums.hpp"
#include "transfer/abi.hpp"
#include "transfer/options.hpp"
#include "transfer/report.hpp"

#include <algorithm>
#include <span>

using hippogriff::asks_for_checksums;
using hippogriff::Direction;
using hippogriff::guarded;
using hippogriff::LandingChecksums;
using hippogriff::LandingPart;
using hippogriff::Status;
using hippogriff::Submission;
using hippogriff::throw_invalid;
using hippogriff::Transfer;

namespace {

// More is a mistake: a file of a terabyte would be in parts of 64 KiB.
constexpr std::size_t segments_max = std::size_t{1} << 24;

std::uint64_t address_value(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

void* pointer_of(hippogriff::DeviceAddress address) {
  return reinterpret_cast<void*>(address.value);  // NOLINT(performance-no-int-to-ptr)
}

// Of the segments, computed as they land.
std::shared_ptr<LandingChecksums> landing_of(const hippogriff_options& options,
                                             std::span<const hippogriff_segment> segments) {
  if (!asks_for_checksums(options)) {
    return nullptr;
  }
  if ((options.flags & HIPPOGRIFF_HOST_MEMORY) == 0 || options.checksums == nullptr) {
    throw_invalid("send", "checksums are of host memory (HOST_MEMORY), and need room");
  }
  std::vector<LandingPart> parts;
  parts.reserve(segments.size());
  for (const hippogriff_segment& segment : segments) {
    if (segment.size > 0) {  // no block; it may lie anywhere
      parts.push_back({segment.offset, {{address_value(segment.memory)}, segment.size}});
    }
  }
  return std::make_shared<LandingChecksums>(std::move(parts),
                                            options.checksum_block_bytes,
                                            std::span(options.checksums, options.checksum_count));
}

void apply(const hippogriff_options& options, Submission& submission) {
  if (asks_for_checksums(options) && submission.checksums == nullptr) {
    throw_invalid("read the options", "checksums are of sends to several segments");
  }
  submission.device = options.device == nullptr ? "" : options.device;
  submission.route = static_cast<hippogriff::Route>(options.route);
  submission.flags = options.flags;
  submission.stream = options.stream;
  submission.memory_timeout_ms =
      std::min(options.memory_timeout_ms, hippogriff::longest_timeout_ms);
  submission.host_memory_bytes = options.host_memory;
}

// Where the caller names the file.
struct Source {
  int fd = -1;
  const char* path = nullptr;
};

void apply(const Source& source, Submission& submission) {
  submission.fd = source.fd;
  if (source.path != nullptr) {
    submission.path = source.path;
    if (submission.path.empty()) {
      throw_invalid("open a file", "the path is empty");
    }
  } else if (source.fd < 0) {
    throw_invalid("use a file descriptor", "it is negative, or the path is NULL");
  }
}

int submit(const Submission& submission, void** address, hippogriff_transfer** handle) {
  return guarded([&] {
    auto made = std::make_unique<hippogriff_transfer>();
    made->generation = hippogriff::process_generation();
    made->transfer = hippogriff::current_runtime()->submit(submission);
    if (address != nullptr && *address == nullptr) {
      *address = pointer_of(made->transfer->address());
    }
    *handle = made.release();
  });
}

int submit_send(const Source& source,
                void** address,
                Submission submission,
                const hippogriff_options* options,
                hippogriff_transfer** handle) {
  const int status = guarded([&] {
    if (address == nullptr || handle == nullptr) {
      throw_invalid("send", "gpuMemPtr or transfer is NULL");
    }
    apply(hippogriff::checked_options(options), submission);
    apply(source, submission);
    submission.address = {address_value(*address)};
  });
  return status == HIPPOGRIFF_OK ? submit(submission, address, handle) : status;
}

int submit_recv(const Source& source,
                const void* address,
                Submission submission,
                const hippogriff_options* options,
                hippogriff_transfer** handle) {
  submission.direction = Direction::recv;
  const int status = guarded([&] {
    if (handle == nullptr) {
      throw_invalid("recv", "transfer is NULL");
    }
    apply(hippogriff::checked_options(options), submission);
    apply(source, submission);
    submission.address = {address_value(address)};
  });
  return status == HIPPOGRIFF_OK ? submit(submission, nullptr, handle) : status;
}

// Submits and waits; the handle's failure becomes the thread's last error.
std::size_t run_to_end(const Submission& submission, void** address) {
  std::size_t moved = HIPPOGRIFF_FAILED;
  guarded([&] {
    const auto transfer = hippogriff::current_runtime()->submit(submission);
    transfer->wait(std::chrono::milliseconds(-1));
    if (transfer->failed()) {
      throw hippogriff::Error(transfer->failure());
    }
    if (address != nullptr) {
      *address = pointer_of(transfer->address());
    }
    moved = transfer->request().extent.size;
  });
  return moved;
}

int begin_prefetch(const Source& source, Submission submission) {
  return guarded([&] {
    apply(source, submission);
    hippogriff::current_runtime()->prefetch(submission);
  });
}

std::size_t send_and_wait(const Source& source, void** address, Submission submission) {
  std::size_t moved = HIPPOGRIFF_FAILED;
  const int status = guarded([&] {
    if (address == nullptr) {
      throw_invalid("send", "gpuMemPtr is NULL; pass the address of a pointer");
    }
    apply(source, submission);
    submission.address = {address_value(*address)};
    submission.flags = HIPPOGRIFF_AFTER_STREAM;
    if (hippogriff::current_runtime()->transfer_small(submission)) {
      moved = submission.size;
    }
  });
  return status != HIPPOGRIFF_OK || moved != HIPPOGRIFF_FAILED ? moved
                                                               : run_to_end(submission, address);
}

std::size_t recv_and_wait(const Source& source, const void* address, Submission submission) {
  submission.direction = Direction::recv;
  std::size_t moved = HIPPOGRIFF_FAILED;
  const int status = guarded([&] {
    apply(source, submission);
    submission.address = {address_value(address)};
    submission.flags = HIPPOGRIFF_AFTER_STREAM;
    if (hippogriff::current_runtime()->transfer_small(submission)) {
      moved = submission.size;
    }
  });
  return status != HIPPOGRIFF_OK || moved != HIPPOGRIFF_FAILED ? moved
                                                               : run_to_end(submission, nullptr);
}

template <typename Body>
int with_handle(hippogriff_transfer* handle, Body&& body) {
  return guarded([&] {
    if (handle == nullptr) {
      throw_invalid("use a transfer", "the handle is NULL");
    }
    if (handle->generation != hippogriff::process_generation()) {
      hippogriff::throw_forked();
    }
    body(*handle->transfer);
  });
}

void require_finished(const Transfer& transfer) {
  if (!transfer.finished()) {
    throw hippogriff::Error({.status = Status::busy,
                             .operation = "ask how a transfer ended",
                             .detail = "it is not finished; wait for it first"});
  }
}

std::chrono::milliseconds patience(std::int64_t timeout_ms) {
  return std::chrono::milliseconds(std::min(timeout_ms, hippogriff::longest_timeout_ms));
}

int wait_status(const Transfer& transfer, bool ended) {
  if (!ended) {
    return hippogriff::remember({.status = Status::timed_out, .operation = "wait for a transfer"});
  }
  return transfer.finished() && transfer.failed() ? hippogriff::remember(transfer.failure())
                                                  : HIPPOGRIFF_OK;
}

}  // namespace

extern "C" {

int hippogriff_init(void) {
  return hippogriff::start_runtime();
}

int hippogriff_deinit(void) {
  return hippogriff::end_runtime();
}

int gullfoss_init(void) {
  return hippogriff_init();
}

int gullfoss_deinit(void) {
  return hippogriff_deinit();
}

size_t hippogriff_send(int fd, void** gpuMemPtr, size_t offset, size_t size) {
  return send_and_wait({.fd = fd}, gpuMemPtr, {.offset = offset, .size = size});
}

size_t hippogriff_recv(int fd, void* gpuMemPtr, size_t offset, size_t size) {
  return recv_and_wait({.fd = fd}, gpuMemPtr, {.offset = offset, .size = size});
}

size_t gullfoss_send(const char* filename, void** gpuMemPtr, size_t offset, size_t size) {
  return send_and_wait({.path = filename}, gpuMemPtr, {.offset = offset, .size = size});
}

size_t gullfoss_recv(const char* filename, void* gpuMemPtr, size_t offset, size_t size) {
  return recv_and_wait({.path = filename}, gpuMemPtr, {.offset = offset, .size = size});
}

int hippogriff_send_async(int fd,
                          void** gpuMemPtr,
                          size_t offset,
                          size_t size,
                          const hippogriff_options* options,
                          hippogriff_transfer** transfer) {
  return submit_send({.fd = fd}, gpuMemPtr, {.offset = offset, .size = size}, options, transfer);
}

int hippogriff_sendv_async(int fd,
                           const hippogriff_segment* segments,
                           size_t count,
                           const hippogriff_options* options,
                           hippogriff_transfer** transfer) {
  Submission submission;
  const int status = guarded([&] {
    if (segments == nullptr || count == 0 || transfer == nullptr) {
      throw_invalid("send", "segments or transfer is NULL, or count is 0");
    }
    if (count > segments_max) {
      throw_invalid("send", "count is more than " + std::to_string(segments_max));
    }
    const hippogriff_options how = hippogriff::checked_options(options);
    submission.checksums = landing_of(how, std::span(segments, count));
    apply(how, submission);
    apply(Source{.fd = fd}, submission);
    submission.destinations.reserve(count);
    for (const hippogriff_segment& segment : std::span(segments, count)) {
      submission.destinations.push_back(
          {{segment.offset, segment.size}, {address_value(segment.memory)}});
    }
  });
  return status == HIPPOGRIFF_OK ? submit(submission, nullptr, transfer) : status;
}

int hippogriff_recv_async(int fd,
                          void* gpuMemPtr,
                          size_t offset,
                          size_t size,
                          const hippogriff_options* options,
                          hippogriff_transfer** transfer) {
  return submit_recv({.fd = fd}, gpuMemPtr, {.offset = offset, .size = size}, options, transfer);
}

int hippogriff_prefetch(int fd, size_t offset, size_t size) {
  return begin_prefetch({.fd = fd}, {.offset = offset, .size = size});
}

int hippogriff_prefetch_path(const char* path, size_t offset, size_t size) {
  return begin_prefetch({.path = path}, {.offset = offset, .size = size});
}

int hippogriff_send_path_async(const char* path,
                               void** gpuMemPtr,
                               size_t offset,
                               size_t size,
                               const hippogriff_options* options,
                               hippogriff_transfer** transfer) {
  return submit_send(
      {.path = path}, gpuMemPtr, {.offset = offset, .size = size}, options, transfer);
}

int hippogriff_recv_path_async(const char* path,
                               void* gpuMemPtr,
                               size_t offset,
                               size_t size,
                               const hippogriff_options* options,
                               hippogriff_transfer** transfer) {
  return submit_recv(
      {.path = path}, gpuMemPtr, {.offset = offset, .size = size}, options, transfer);
}

int hippogriff_wait(hippogriff_transfer* transfer, int64_t timeout_ms) {
  int status = HIPPOGRIFF_OK;
  const int called = with_handle(transfer, [&](Transfer& the_transfer) {
    status = wait_status(the_transfer, the_transfer.wait(patience(timeout_ms)));
  });
  return called == HIPPOGRIFF_OK ? status : called;
}

int hippogriff_wait_released(hippogriff_transfer* transfer, int64_t timeout_ms) {
  int status = HIPPOGRIFF_OK;
  const int called = with_handle(transfer, [&](Transfer& the_transfer) {
    status = wait_status(the_transfer, the_transfer.wait_released(patience(timeout_ms)));
  });
  return called == HIPPOGRIFF_OK ? status : called;
}

int hippogriff_cancel(hippogriff_transfer* transfer) {
  return with_handle(transfer, [](Transfer& the_transfer) { the_transfer.cancel(); });
}

int hippogriff_get_progress(hippogriff_transfer* transfer, hippogriff_progress* progress) {
  return with_handle(transfer, [&](Transfer& the_transfer) {
    if (progress == nullptr) {
      throw_invalid("ask for progress", "progress is NULL");
    }
    *progress = the_transfer.progress();
  });
}

void* hippogriff_address(hippogriff_transfer* transfer) {
  return transfer == nullptr ? nullptr : pointer_of(transfer->transfer->address());
}

int hippogriff_get_error(hippogriff_transfer* transfer, hippogriff_error* error) {
  return with_handle(transfer, [&](Transfer& the_transfer) {
    if (error == nullptr) {
      throw_invalid("ask for the error", "error is NULL");
    }
    require_finished(the_transfer);
    hippogriff::fill_error(*error, the_transfer.failure(), the_transfer.failure_message());
  });
}

int hippogriff_get_missing(hippogriff_transfer* transfer,
                           hippogriff_range* ranges,
                           size_t capacity,
                           size_t* count) {
  return with_handle(transfer, [&](Transfer& the_transfer) {
    if (count == nullptr || (ranges == nullptr && capacity > 0)) {
      throw_invalid("ask what is missing", "count or ranges is NULL");
    }
    require_finished(the_transfer);
    const auto missing = the_transfer.missing();
    *count = missing.size();
    for (std::size_t index = 0; index < std::min(capacity, missing.size()); ++index) {
      ranges[index] = {missing[index].offset, missing[index].size};
    }
  });
}

int hippogriff_get_report(hippogriff_transfer* transfer, char** json) {
  return with_handle(transfer, [&](Transfer& the_transfer) {
    if (json == nullptr) {
      throw_invalid("ask for a report", "json is NULL");
    }
    require_finished(the_transfer);
    *json = hippogriff::copy_string(hippogriff::report_json(the_transfer));
  });
}

int hippogriff_get_route(hippogriff_transfer* transfer, char** route) {
  return with_handle(transfer, [&](Transfer& the_transfer) {
    if (route == nullptr) {
      throw_invalid("ask for the route", "route is NULL");
    }
    require_finished(the_transfer);
    *route = hippogriff::copy_string(hippogriff::route_taken(the_transfer));
  });
}

int hippogriff_get_fd(hippogriff_transfer* transfer, int* fd) {
  return with_handle(transfer, [&](Transfer& the_transfer) {
    if (fd == nullptr) {
      throw_invalid("ask for a descriptor", "fd is NULL");
    }
    *fd = the_transfer.completion_fd();
  });
}

void hippogriff_release(hippogriff_transfer* transfer) {
  // A forked child leaves the parent's handles alone: their threads are not here.
  if (transfer != nullptr && transfer->generation == hippogriff::process_generation()) {
    delete transfer;
  }
}

}  // extern "C"
