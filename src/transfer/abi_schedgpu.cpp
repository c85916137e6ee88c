// schedGPU's three functions over reservations: one for each device, which grows and shrinks.
#include "device/cuda_device.hpp"
#include "node/node.hpp"
#include "transfer/abi.hpp"
#include "transfer/node_share.hpp"

#include <hippogriff/schedgpu.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace hippogriff {

namespace {

// cudaError_t's values.
constexpr int cuda_success = 0;
constexpr int cuda_error_invalid_value = 1;
constexpr int cuda_error_memory_allocation = 2;
constexpr int cuda_error_initialization_error = 3;
constexpr int cuda_error_invalid_device = 101;
constexpr int cuda_error_not_ready = 600;
constexpr int cuda_error_unknown = 999;

struct Reserved {
  std::mutex growing;  // guards what follows; held by who waits, for it grows once at a time
  std::uint64_t handle = 0;
  std::uint64_t size_bytes = 0;
};

struct SchedGpu {
  std::mutex mutex;  // guards what follows; not held while memory is waited for
  bool ready = false;
  std::chrono::milliseconds timeout{0};
  std::int32_t priority = 0;
  std::uint64_t generation = 0;
  std::map<std::string, Reserved> reserved;  // by UUID; nothing is ever removed
};

// Never destroyed: threads may call while the process exits. A forked child gets another one: its
// parent's mutexes may be held by threads that do not exist in it.
SchedGpu& state() {
  static std::atomic<SchedGpu*> the_state{nullptr};
  SchedGpu* now = the_state.load(std::memory_order_acquire);
  if (now == nullptr || now->generation != process_generation()) {
    auto made = std::make_unique<SchedGpu>();
    made->generation = process_generation();
    made->ready = now != nullptr && now->ready;
    made->timeout = now != nullptr ? now->timeout : made->timeout;
    made->priority = now != nullptr ? now->priority : 0;
    if (the_state.compare_exchange_strong(now, made.get(), std::memory_order_acq_rel)) {
      now = made.release();
    }
  }
  return *now;
}

int cuda_error(const Failure& failure) {
  static_cast<void>(remember(failure));
  switch (failure.status) {
    case Status::busy:
    case Status::timed_out:
    case Status::cancelled:
      return cuda_error_not_ready;
    case Status::out_of_device_memory:
      return cuda_error_memory_allocation;
    case Status::invalid_argument:
      return cuda_error_invalid_value;
    default:
      return cuda_error_unknown;
  }
}

template <typename Body>
int guarded_as_cuda(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return cuda_error(current_failure());
  }
}

int device_count() {
  return std::max(1, cuda_presence().device_count);
}

SharedDeviceFacts facts_of(int device) {
  return NodeShare::identify(cuda_presence().device_count == 0 ? "host"
                                                               : "cuda:" + std::to_string(device));
}

std::shared_ptr<NodeShare> share_of_process() {
  auto share = current_share();
  if (share == nullptr) {
    throw Error({.status = Status::unsupported,
                 .operation = "use the node",
                 .detail = "HIPPOGRIFF_NODE is off"});
  }
  return share;
}

// Nothing when a device is not there.
std::optional<std::vector<int>> candidates(int device, const int* valid, int valid_count) {
  std::vector<int> chosen;
  if (device >= 0) {
    chosen = {device};
  } else if (valid != nullptr && valid_count > 0) {
    chosen.assign(valid, valid + valid_count);
  } else {
    for (int index = 0; index < device_count(); ++index) {
      chosen.push_back(index);
    }
  }
  const bool all_there =
      std::ranges::all_of(chosen, [](int index) { return index >= 0 && index < device_count(); });
  return all_there ? std::optional(chosen) : std::nullopt;
}

std::uint64_t free_bytes(NodeShare& share, const std::string& uuid) {
  const node::NodeView view = share.node().view();
  for (std::size_t index = 0; index < view.devices.size(); ++index) {
    if (view.devices[index].name_view() != uuid) {
      continue;
    }
    std::uint64_t taken = view.devices[index].outside_bytes;
    for (const auto& reservation : view.reservations) {
      const node::ReservationRecord& record = reservation.record;
      taken += record.device == index ? record.size_bytes + record.kept_bytes : 0;
    }
    return view.devices[index].capacity_bytes - std::min(taken, view.devices[index].capacity_bytes);
  }
  return 0;
}

// The one with the most free memory, of those that are large enough.
std::optional<int> choose(NodeShare& share, const std::vector<int>& devices, std::uint64_t bytes) {
  std::optional<int> best;
  std::uint64_t most = 0;
  for (const int device : devices) {
    const SharedDeviceFacts facts = facts_of(device);
    share.account(facts);
    const std::uint64_t free = free_bytes(share, facts.uuid);
    if (bytes <= facts.memory_bytes && (!best || free > most)) {
      best = device;
      most = free;
    }
  }
  return best;
}

Reserved& reserved_of(SchedGpu& schedgpu, const SharedDeviceFacts& facts) {
  const std::scoped_lock lock(schedgpu.mutex);
  return schedgpu.reserved[facts.uuid];
}

void grow(SchedGpu& schedgpu, const SharedDeviceFacts& facts, std::uint64_t bytes, bool block) {
  Reserved& reserved = reserved_of(schedgpu, facts);
  std::unique_lock one_at_a_time(reserved.growing, std::defer_lock);
  if (block) {
    one_at_a_time.lock();
  } else if (!one_at_a_time.try_lock()) {
    throw Error({.status = Status::busy,
                 .operation = "reserve",
                 .object = facts.name,
                 .detail = "another thread of this process waits for memory of it"});
  }
  const auto share = share_of_process();
  share->account(facts);
  std::chrono::milliseconds timeout{0};
  node::Request request;
  {
    const std::scoped_lock lock(schedgpu.mutex);
    timeout = block ? schedgpu.timeout : timeout;
    request.priority = schedgpu.priority;
  }
  request.size_bytes = reserved.size_bytes + (bytes == 0 ? facts.memory_bytes : bytes);
  request.timeout = timeout;
  if (request.size_bytes < bytes || request.size_bytes > facts.memory_bytes) {
    throw Error({.status = Status::out_of_device_memory,
                 .operation = "reserve",
                 .object = facts.name,
                 .detail = "more than the device has, with what is reserved already"});
  }
  if (reserved.size_bytes == 0) {
    reserved.handle = share->reserve(facts.uuid, request);
  } else {
    share->resize(facts.uuid, reserved.handle, request.size_bytes, timeout);
  }
  reserved.size_bytes = request.size_bytes;
}

}  // namespace

}  // namespace hippogriff

using hippogriff::guarded_as_cuda;

extern "C" {

int schedGPUInit(int timeout_in_seconds, int priority) {
  return guarded_as_cuda([&] {
    auto& schedgpu = hippogriff::state();
    if (timeout_in_seconds < 0) {
      return hippogriff::cuda_error_invalid_value;
    }
    static_cast<void>(hippogriff::share_of_process());
    const std::scoped_lock lock(schedgpu.mutex);
    schedgpu.timeout = std::chrono::seconds(timeout_in_seconds);
    schedgpu.priority = -std::max(priority, -INT32_MAX);
    schedgpu.ready = true;
    return hippogriff::cuda_success;
  });
}

int preCudaMalloc(
    int* device, size_t bytes, int block, const int* valid_devices, int valid_devices_len) {
  return guarded_as_cuda([&] {
    auto& schedgpu = hippogriff::state();
    {
      const std::scoped_lock lock(schedgpu.mutex);
      if (!schedgpu.ready) {
        return hippogriff::cuda_error_initialization_error;
      }
    }
    if (device == nullptr) {
      return hippogriff::cuda_error_invalid_value;
    }
    const auto possible = hippogriff::candidates(*device, valid_devices, valid_devices_len);
    if (!possible) {
      return hippogriff::cuda_error_invalid_device;
    }
    const auto chosen = hippogriff::choose(*hippogriff::share_of_process(), *possible, bytes);
    if (!chosen) {
      return hippogriff::cuda_error_memory_allocation;
    }
    hippogriff::grow(schedgpu, hippogriff::facts_of(*chosen), bytes, block != 0);
    *device = *chosen;
    return hippogriff::cuda_success;
  });
}

int postCudaFree(int device, size_t bytes) {
  return guarded_as_cuda([&] {
    auto& schedgpu = hippogriff::state();
    if (!hippogriff::candidates(std::max(device, 0), nullptr, 0) || device < 0) {
      return hippogriff::cuda_error_invalid_device;
    }
    const hippogriff::SharedDeviceFacts facts = hippogriff::facts_of(device);
    const auto share = hippogriff::share_of_process();
    auto& reserved = hippogriff::reserved_of(schedgpu, facts);
    const std::scoped_lock lock(reserved.growing);
    if (reserved.size_bytes == 0 || bytes > reserved.size_bytes) {
      return hippogriff::cuda_error_invalid_value;
    }
    const std::uint64_t rest = bytes == 0 ? 0 : reserved.size_bytes - bytes;
    if (rest == 0) {
      share->release(facts.uuid, reserved.handle);
    } else {
      share->resize(facts.uuid, reserved.handle, rest, std::chrono::milliseconds(0));
    }
    reserved.size_bytes = rest;
    return hippogriff::cuda_success;
  });
}

}  // extern "C"
