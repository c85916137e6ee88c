// The C functions about devices, memory, streams and what the runtime knows.
#include "transfer/abi.hpp"
#include "transfer/measure.hpp"
#include "transfer/report.hpp"

#include <algorithm>
#include <cstdlib>

using hippogriff::current_runtime;
using hippogriff::DeviceAddress;
using hippogriff::DeviceScope;
using hippogriff::DeviceState;
using hippogriff::Error;
using hippogriff::guarded;
using hippogriff::Status;
using hippogriff::throw_invalid;

namespace {

DeviceAddress address_of(const void* pointer) {
  return {reinterpret_cast<std::uintptr_t>(pointer)};
}

std::string text_or_empty(const char* text) {
  return text == nullptr ? "" : text;
}

// Checks that the device memory holds the bytes, and makes its device current.
template <typename Body>
int with_device_memory(
    const void* pointer, const void* host, size_t size, hippogriff::MemoryUse use, Body&& body) {
  return guarded([&] {
    if (pointer == nullptr || host == nullptr) {
      throw_invalid("copy", "a pointer is NULL");
    }
    const auto runtime = current_runtime();
    const auto [state, allocation] = runtime->locate(address_of(pointer));
    const DeviceScope scope(*state.device);
    if (size > allocation.room_from(address_of(pointer))) {
      throw_invalid(
          "copy",
          "the device memory does not hold " + std::to_string(size) + " bytes from the pointer on");
    }
    if (size == 0) {
      return;
    }
    const hippogriff::InFlight::Use in_use(state.in_flight, address_of(pointer), size, use);
    body(*state.device);
  });
}

void finish(hippogriff::Device& device, hippogriff::Stream& stream) {
  const auto event = device.create_event();
  stream.record(*event);
  if (!hippogriff::wait_for(*event, hippogriff::device_timeout)) {
    throw Error({.status = Status::device_error,
                 .operation = "copy",
                 .object = device.info().name,
                 .detail = "the copy did not complete in 60 s"});
  }
}

int give_json(char** json, const std::function<std::string()>& make) {
  return guarded([&] {
    if (json == nullptr) {
      throw_invalid("ask for JSON", "json is NULL");
    }
    *json = hippogriff::copy_string(make());
  });
}

// What was left for this command's first use of the device, where it was.
void await_first_use(hippogriff::DeviceState& state) {
  if (state.memory_claim != nullptr) {
    const hippogriff::node::FirstUse& use = state.memory_claim->first_use();
    use.wait(use.timeout(), nullptr);
  }
}

}  // namespace

extern "C" {

int hippogriff_malloc(const char* device, size_t size, void** pointer) {
  return guarded([&] {
    if (pointer == nullptr || size == 0) {
      throw_invalid("allocate device memory", "pointer is NULL or size is 0");
    }
    const auto runtime = current_runtime();
    hippogriff::DeviceState& state = runtime->device(text_or_empty(device));
    await_first_use(state);
    const DeviceAddress address = state.allocate(size);
    *pointer = reinterpret_cast<void*>(address.value);  // NOLINT(performance-no-int-to-ptr)
  });
}

int hippogriff_free(void* pointer) {
  return guarded([&] {
    if (pointer != nullptr && !current_runtime()->free(address_of(pointer))) {
      throw_invalid("free device memory", "hippogriff did not allocate it, or it is freed already");
    }
  });
}

int hippogriff_copy_to_device(void* device_pointer, const void* host, size_t size) {
  const auto copy = [&](hippogriff::Device& device) {
    const auto stream = device.create_stream();
    stream->copy_to_device(address_of(device_pointer), static_cast<const std::byte*>(host), size);
    finish(device, *stream);
  };
  return with_device_memory(device_pointer, host, size, hippogriff::MemoryUse::writes, copy);
}

int hippogriff_copy_to_host(void* host, const void* device_pointer, size_t size) {
  const auto copy = [&](hippogriff::Device& device) {
    const auto stream = device.create_stream();
    stream->copy_to_host(static_cast<std::byte*>(host), address_of(device_pointer), size);
    finish(device, *stream);
  };
  return with_device_memory(device_pointer, host, size, hippogriff::MemoryUse::reads, copy);
}

int hippogriff_stream_create(const char* device, void** stream) {
  return guarded([&] {
    if (stream == nullptr) {
      throw_invalid("create a stream", "stream is NULL");
    }
    *stream = current_runtime()->device(text_or_empty(device)).create_caller_stream();
  });
}

int hippogriff_stream_launch(const char* device,
                             void* stream,
                             void (*function)(void*),
                             void* argument) {
  return guarded([&] {
    if (function == nullptr) {
      throw_invalid("launch", "function is NULL");
    }
    const auto runtime = current_runtime();
    DeviceState& state = runtime->device(text_or_empty(device));
    const DeviceScope scope(*state.device);
    state.device->borrow_stream(stream)->launch([function, argument] { function(argument); });
  });
}

int hippogriff_stream_synchronize(const char* device, void* stream, int64_t timeout_ms) {
  return guarded([&] {
    const auto runtime = current_runtime();
    DeviceState& state = runtime->device(text_or_empty(device));
    const DeviceScope scope(*state.device);
    const auto borrowed = state.device->borrow_stream(stream);
    const std::chrono::milliseconds timeout(
        timeout_ms < 0 ? hippogriff::longest_timeout_ms
                       : std::min(timeout_ms, hippogriff::longest_timeout_ms));
    if (!hippogriff::wait_for(*borrowed, timeout)) {
      throw Error({.status = Status::timed_out, .operation = "synchronize a stream"});
    }
  });
}

int hippogriff_stream_destroy(const char* device, void* stream) {
  return guarded([&] {
    if (!current_runtime()->device(text_or_empty(device)).destroy_caller_stream(stream)) {
      throw_invalid("destroy a stream", "hippogriff_stream_create did not make it");
    }
  });
}

const char* hippogriff_status_name(int status) {
  return hippogriff::status_name(static_cast<Status>(status)).data();
}

const char* hippogriff_route_name(int route) {
  if (route < 0 || route >= HIPPOGRIFF_ROUTE_COUNT) {
    return "unknown";
  }
  return hippogriff::route_name(static_cast<hippogriff::Route>(route)).data();
}

#define HIPPO_TEXT_OF(number) #number
#define HIPPO_TEXT(number) HIPPO_TEXT_OF(number)

const char* hippogriff_version(void) {
  return HIPPO_TEXT(HIPPOGRIFF_VERSION_MAJOR) "." HIPPO_TEXT(
      HIPPOGRIFF_VERSION_MINOR) "." HIPPO_TEXT(HIPPOGRIFF_VERSION_PATCH);
}

int hippogriff_info(const char* path, char** json) {
  return give_json(json, [&] {
    return hippogriff::info_json(*current_runtime(), path == nullptr ? "." : path);
  });
}

int hippogriff_explain(
    const char* path, size_t offset, size_t size, int direction, const char* device, char** json) {
  return give_json(json, [&] {
    if (path == nullptr || direction < 0 || direction > 1) {
      throw_invalid("explain", "path is NULL, or direction is neither 0 (send) nor 1 (recv)");
    }
    return hippogriff::explain_json(
        *current_runtime(),
        {.direction = direction == 0 ? hippogriff::Direction::send : hippogriff::Direction::recv,
         .path = path,
         .offset = offset,
         .size = size,
         .device = text_or_empty(device)});
  });
}

int hippogriff_stats(char** json) {
  return give_json(json, [] { return hippogriff::stats_json(*current_runtime()); });
}

int hippogriff_notices(char** text) {
  return guarded([&] {
    if (text == nullptr) {
      throw_invalid("ask for notices", "text is NULL");
    }
    std::string lines;
    for (const std::string& sentence : current_runtime()->notices()) {
      lines += (lines.empty() ? "" : "\n") + sentence;
    }
    *text = lines.empty() ? nullptr : hippogriff::copy_string(lines);
  });
}

int hippogriff_calibrate(const char* device,
                         const char* directory,
                         int (*progress)(void* context, const char* step, double fraction),
                         void* context,
                         char** json) {
  return give_json(json, [&] {
    const auto runtime = current_runtime();
    await_first_use(runtime->device(text_or_empty(device)));
    return hippogriff::measure(*runtime,
                               text_or_empty(device),
                               directory == nullptr ? "." : directory,
                               [&](const char* step, double fraction) {
                                 return progress == nullptr ||
                                        progress(context, step, fraction) == 0;
                               });
  });
}

void hippogriff_free_string(char* string) {
  std::free(string);
}

}  // extern "C"
