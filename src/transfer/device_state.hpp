// All that the runtime keeps for one device: its engine, its short path, its checksums, what is in
// flight, what was allocated for callers, and the words its streams wait for.
#pragma once

#include "checksum/device_checksum.hpp"
#include "node/first_use.hpp"
#include "transfer/driver_watch.hpp"
#include "transfer/engine.hpp"
#include "transfer/in_flight.hpp"
#include "transfer/small_path.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace hippogriff {

// Words in pinned memory that callers' streams wait for (HIPPOGRIFF_BEFORE_STREAM). Values only
// grow, so that a stream that looks late still sees its turn. Thread-safe. The memory is never
// given back: a stream may look at it at any time.
//
// A driver that loads a kernel waits for all streams, and everybody else for the driver. Where one
// of those streams waits for a flag, that would be for ever: when the driver answers no call any
// more, the transfers that hold flags fail and the flags are raised, which needs no driver.
class StreamFlags {
 public:
  explicit StreamFlags(std::shared_ptr<Device> device);

  // A flag that is not raised yet. Throws Error(busy) when 1024 transfers hold one.
  HostFlag take(const std::shared_ptr<Transfer>& holder);
  // Raises a taken flag and takes it back.
  void raise(HostFlag flag);

  // For tests, before a flag is taken.
  void look_every(std::chrono::milliseconds interval) { watch_.look_every(interval); }

 private:
  struct Held {
    HostFlag flag;
    std::weak_ptr<Transfer> holder;
  };

  void fail_holders();

  static constexpr std::size_t words = 1024;

  std::shared_ptr<Device> device_;
  std::mutex mutex_;
  std::uint32_t* memory_ = nullptr;
  std::vector<std::uint32_t*> free_;
  std::map<std::uint32_t*, Held> held_;  // taken and not raised
  DriverWatch watch_;                    // on while any are; the first to go
};

// Thread-safe.
struct DeviceState {
  DeviceState(std::shared_ptr<Device> the_device,
              const std::shared_ptr<Storage>& storage,
              const EngineOptions& options);

  // Device memory for a caller, freed at the end if they do not. Throws out_of_device_memory.
  DeviceAddress allocate(std::size_t size_bytes);
  // Remembers memory that a transfer allocated.
  void keep(DeviceAddress address, std::size_t size_bytes);
  // False when `address` was not allocated here. Throws Error(busy) while a transfer uses it.
  bool free(DeviceAddress address);
  // The caller's allocation around an address, when it was made here.
  [[nodiscard]] std::optional<AllocationInfo> allocation_of(DeviceAddress address) const;
  [[nodiscard]] std::uint64_t allocated_bytes() const;
  void free_all();

  // Streams for callers without CUDA, by their native handles.
  void* create_caller_stream();
  bool destroy_caller_stream(void* handle);

  std::shared_ptr<Device> device;
  InFlight in_flight;
  StreamFlags flags;
  SmallPath small;
  DeviceChecksum checksum;
  std::unique_ptr<Engine> engine;
  // Null but in a command whose memory was left for its first use.
  std::unique_ptr<node::BackgroundClaim> memory_claim;

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::size_t> allocations_;
  std::map<void*, std::unique_ptr<Stream>> caller_streams_;
};

}  // namespace hippogriff
