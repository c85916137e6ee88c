// What both queues make of an IoRequest before they carry it out.
#pragma once

#include "base/error.hpp"
#include "storage/pieces.hpp"
#include "storage/storage.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace hippogriff {

inline constexpr std::size_t queue_depth_max = 4096;
// One request moves at most this much; more is a short result. Keeps every alignment.
inline constexpr std::size_t request_bytes_max = std::size_t{1} << 30;
// How often a queue that is being destroyed says that it still waits for its drive.
inline constexpr std::chrono::seconds queue_close_patience{30};

inline void complain_of_drive(std::size_t requests) {
  std::fprintf(stderr,
               "hippogriff: a drive has not answered %zu requests for %lld s; their memory cannot "
               "be used before it does\n",
               requests,
               static_cast<long long>(queue_close_patience.count()));
}

struct CheckedRequest {
  int fd = -1;
  IoRequest::Kind kind = IoRequest::Kind::read;
  std::uint64_t offset = 0;
  std::byte* memory = nullptr;
  std::size_t size_bytes = 0;
  std::uint64_t tag = 0;
  std::vector<iovec> pieces;  // empty: `memory`
};

// Throws Error(invalid_argument) when the caller broke the queue's contract.
inline CheckedRequest check_request(const IoRequest& request,
                                    std::size_t in_flight,
                                    std::size_t depth) {
  const char* operation = request.kind == IoRequest::Kind::read ? "queue read" : "queue write";
  if (in_flight >= depth) {
    throw_invalid(operation, "the queue is full: " + std::to_string(depth) + " in flight");
  }
  if (request.file == nullptr) {
    throw_invalid(operation, "the request names no file");
  }
  const int fd = request.direct ? request.file->direct_fd() : request.file->fd();
  if (fd < 0) {
    throw_invalid(operation, request.file->facts().path + " has no O_DIRECT description");
  }
  const std::size_t size = request.pieces.empty()
                               ? std::min(request.memory.size(), request_bytes_max)
                               : size_of(request.pieces);
  if (request.offset > INT64_MAX - size) {
    throw_invalid(operation, "the offset is too large: " + std::to_string(request.offset));
  }
  return {fd,
          request.kind,
          request.offset,
          request.memory.data(),
          size,
          request.tag,
          {request.pieces.begin(), request.pieces.end()}};
}

// When a wait that begins now ends; a day stands for ever, so that no clock overflows.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::nanoseconds timeout) {
  constexpr std::chrono::nanoseconds longest = std::chrono::hours(24);
  return std::chrono::steady_clock::now() +
         std::clamp(timeout, std::chrono::nanoseconds(0), longest);
}

}  // namespace hippogriff
