// A trace of every chunk, in Chrome's JSON that Perfetto opens: HIPPOGRIFF_TRACE=file.json.
#pragma once

#include "base/nvtx.hpp"

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace hippogriff {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Writes each event to a file as it ends, so that a killed program leaves a trace that still opens
// in Perfetto (JSON that wants its last line). Times are of the monotonic clock since the machine
// started: traces of several processes line up, and with a program's own times. Thread-safe; a
// forked child writes nothing. One track per name: overlapping slices on one track would not show.
class Trace {
 public:
  // In place of a former trace. While another process writes to that file: into one beside it with
  // the process's number in its name. Throws Error: io_error when it cannot be made,
  // invalid_argument when the file is no trace.
  explicit Trace(const std::string& path);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // The number of a track, made at the first use of its name.
  std::uint32_t track(std::string_view name);
  void slice(std::uint32_t track,
             std::string_view name,
             Clock::time_point begin,
             Clock::time_point end,
             std::uint64_t offset,
             std::uint64_t size_bytes);

 private:
  void write(std::string_view text);
  void write_event(const std::string& event);

  std::mutex mutex_;
  int fd_;
  std::string path_;
  pid_t pid_;
  std::atomic<std::uint32_t> tracks_{0};
  int errno_ = 0;  // of the first write that failed: none is tried after it
  bool first_ = true;
};

// The name of a kind of slice, in the trace and for NVIDIA's profilers. Keep it in a `static
// const`.
class SliceName {
 public:
  explicit SliceName(const char* text) : text_(text), nvtx_(text) {}

  [[nodiscard]] const char* text() const { return text_; }

  [[nodiscard]] const NvtxName& nvtx() const { return nvtx_; }

 private:
  const char* text_;
  NvtxName nvtx_;
};

// The time from construction to destruction: in the trace, when there is one, and as an NVTX range.
class TraceSlice {
 public:
  TraceSlice(Trace* trace,
             std::uint32_t track,
             const SliceName& name,
             std::uint64_t offset,
             std::uint64_t size_bytes)
      : trace_(trace),
        name_(name.text()),
        offset_(offset),
        size_bytes_(size_bytes),
        track_(track),
        range_(name.nvtx(), size_bytes) {
    if (trace_ != nullptr) {
      begin_ = Clock::now();
    }
  }

  ~TraceSlice() {
    if (trace_ != nullptr) {
      trace_->slice(track_, name_, begin_, Clock::now(), offset_, size_bytes_);
    }
  }

  TraceSlice(const TraceSlice&) = delete;
  TraceSlice& operator=(const TraceSlice&) = delete;

 private:
  Trace* trace_;
  const char* name_;
  std::uint64_t offset_;
  std::uint64_t size_bytes_;
  Clock::time_point begin_;
  std::uint32_t track_;
  NvtxRange range_;
};

}  // namespace hippogriff
