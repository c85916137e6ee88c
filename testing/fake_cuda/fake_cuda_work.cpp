// The driver functions themselves, as cuda.h declares them: streams, events and copies.
#include "testing/fake_cuda/fake_state.hpp"

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

using fake_cuda::Event;
using fake_cuda::is_device_range;
using fake_cuda::Marker;
using fake_cuda::push;
using fake_cuda::state;
using fake_cuda::Stream;

namespace {

// The stream behind a handle; the two default streams are made at their first use.
std::shared_ptr<Stream> find_stream(CUstream handle) {
  const std::lock_guard lock(state().mutex);
  const CUstream key = handle == nullptr ? CU_STREAM_LEGACY : handle;
  auto found = state().streams.find(key);
  if (found == state().streams.end() && (key == CU_STREAM_LEGACY || key == CU_STREAM_PER_THREAD)) {
    found = state().streams.emplace(key, std::make_shared<Stream>()).first;
  }
  return found == state().streams.end() ? nullptr : found->second;
}

// memcpy takes no null pointers, not even for nothing.
void copy_bytes(void* to, const void* from, std::size_t size_bytes) {
  if (size_bytes != 0) {
    std::memcpy(to, from, size_bytes);
  }
}

// Each word by an atomic load: kernels may count up what is copied meanwhile, by atomic operations.
// What they write otherwise meanwhile is a race here as well.
void copy_words(void* to, const void* from, std::size_t size_bytes) {
  constexpr std::size_t word_bytes = sizeof(std::uint64_t);
  auto* there = static_cast<std::byte*>(to);
  const auto* here = static_cast<const std::byte*>(from);
  if (reinterpret_cast<std::uintptr_t>(here) % word_bytes == 0) {
    for (; size_bytes >= word_bytes; size_bytes -= word_bytes) {
      auto* const place = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(here));
      const std::uint64_t word = std::atomic_ref(*place).load(std::memory_order_relaxed);
      std::memcpy(there, &word, word_bytes);
      there += word_bytes;
      here += word_bytes;
    }
  }
  copy_bytes(there, here, size_bytes);
}

CUresult copy_to_device(CUdeviceptr to, const void* from, std::size_t size_bytes, CUstream stream) {
  if (size_bytes != 0 && !is_device_range(to, size_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return push(stream, [=](const std::stop_token&) {
    copy_bytes(reinterpret_cast<void*>(to), from, size_bytes);
  });
}

}  // namespace

namespace fake_cuda {

CUresult push(CUstream handle, Stream::Work work) {
  const auto stream = find_stream(handle);
  if (stream == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  stream->push(std::move(work));
  return CUDA_SUCCESS;
}

bool is_device_range(CUdeviceptr address, std::size_t size_bytes) {
  const std::lock_guard lock(state().mutex);
  const auto* range = around(state().allocations, address);
  return range != nullptr && address - range->first + size_bytes <= range->second.size_bytes;
}

}  // namespace fake_cuda

extern "C" {
#pragma GCC visibility push(default)

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to,
                                   const void* from,
                                   size_t size_bytes,
                                   CUstream stream) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  return copy_to_device(to, from, size_bytes, stream);
}

CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr* to,
                                    CUdeviceptr* from,
                                    size_t* sizes_bytes,
                                    size_t count,
                                    CUmemcpyAttributes* attributes,
                                    size_t* first_of_attributes,
                                    size_t attributes_count,
                                    CUstream stream) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  if (count == 0 || attributes_count != 1 || first_of_attributes[0] != 0 || stream == nullptr ||
      stream == CU_STREAM_LEGACY ||
      attributes->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t index = 0; index < count; ++index) {
    const CUresult result = copy_to_device(
        to[index], reinterpret_cast<const void*>(from[index]), sizes_bytes[index], stream);
    if (result != CUDA_SUCCESS) {
      return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  if (size_bytes != 0 && !is_device_range(from, size_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return push(stream, [=](const std::stop_token&) {
    copy_words(to, reinterpret_cast<const void*>(from), size_bytes);
  });
}

CUresult CUDAAPI cuStreamCreate(CUstream* handle, unsigned int) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  auto stream = std::make_shared<Stream>();
  *handle = reinterpret_cast<CUstream>(stream.get());
  const std::lock_guard lock(state().mutex);
  state().streams[*handle] = std::move(stream);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  const auto found = state().streams.find(handle);
  if (found == state().streams.end()) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  state().destroyed_streams.push_back(found->second);  // goes on with what it has
  state().streams.erase(found);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
  HIPPO_FAKE_ENTER()
  const auto stream = find_stream(handle);
  if (stream == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return stream->idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  *status = state().capturing.contains(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                               : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamWaitValue32(CUstream stream,
                                     CUdeviceptr address,
                                     cuuint32_t value,
                                     unsigned int flags) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  auto* word = reinterpret_cast<std::uint32_t*>(address);
  return push(stream, [word, value](const std::stop_token& stop) {
    fake_cuda::poll(stop, [word, value] {
      const std::uint32_t now = std::atomic_ref(*word).load(std::memory_order_acquire);
      return static_cast<std::int32_t>(now - value) >= 0;
    });
  });
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  return push(stream, [function, argument](const std::stop_token&) { function(argument); });
}

CUresult CUDAAPI cuEventCreate(CUevent* handle, unsigned int) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  auto event = std::make_shared<Event>();
  *handle = reinterpret_cast<CUevent>(event.get());
  const std::lock_guard lock(state().mutex);
  state().events[*handle] = std::move(event);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent handle) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  return state().events.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream) {
  HIPPO_FAKE_ENTER()
  auto marker = std::make_shared<Marker>();
  {
    const std::lock_guard lock(state().mutex);
    state().events.at(handle)->before = {marker};
  }
  return push(stream, [marker](const std::stop_token&) { marker->reached = true; });
}

// Behind the work of all streams, which are all taken for the context's.
CUresult CUDAAPI cuCtxRecordEvent(CUcontext, CUevent handle) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  if (const CUresult result = fake_cuda::spoil_captures(); result != CUDA_SUCCESS) {
    return result;
  }
  auto& before = state().events.at(handle)->before;
  before.clear();
  const auto add = [&before](const std::shared_ptr<Stream>& stream) {
    if (!stream->idle()) {
      auto marker = std::make_shared<Marker>();
      before.push_back(marker);
      stream->push([marker](const std::stop_token&) { marker->reached = true; });
    }
  };
  for (const auto& [key, stream] : state().streams) {
    add(stream);
  }
  std::for_each(state().destroyed_streams.begin(), state().destroyed_streams.end(), add);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventQuery(CUevent handle) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  if (fake_cuda::capture_mode() != CU_STREAM_CAPTURE_MODE_RELAXED) {
    if (const CUresult result = fake_cuda::spoil_captures(); result != CUDA_SUCCESS) {
      return result;
    }
  }
  return state().events.at(handle)->reached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  HIPPO_FAKE_ENTER()
  std::swap(*mode, fake_cuda::capture_mode());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned int) {
  HIPPO_FAKE_ENTER()
  Event event;
  {
    const std::lock_guard lock(state().mutex);
    event = *state().events.at(handle);
  }
  return push(stream, [event](const std::stop_token& stop) {
    fake_cuda::poll(stop, [&event] { return event.reached(); });
  });
}

#pragma GCC visibility pop
}  // extern "C"
