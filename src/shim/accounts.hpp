// What the process holds: its allocations with the contexts and pools they belong to.
#pragma once

#include "shim/contexts.hpp"
#include "shim/driver_api.hpp"
#include "shim/physical.hpp"
#include "shim/pool.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hippogriff::shim {

enum class Kind : std::uint8_t { memory, array, mipmapped_array };

// An allocation that is counted.
struct Held {
  std::uint64_t size_bytes = 0;
  int device = 0;
  CUcontext context = nullptr;  // with which it dies; null: none alone
  std::shared_ptr<Pool> pool;   // of a stream-ordered one
};

// Allocations by address or handle. Thread-safe; shards keep threads out of each other's way.
class LiveTable {
 public:
  // An entry of the same key, whose end nobody told us, is given back. When host memory is out the
  // bytes stay counted.
  void put(Kind kind, std::uint64_t key, Held held) noexcept;
  // Takes the entry out before the driver frees it and may hand out its address again.
  std::optional<Held> claim(Kind kind, std::uint64_t key) noexcept;
  // Takes out what dies with the context; with `whole_device` what the device's pools hold too.
  std::vector<std::pair<std::uint64_t, Held>> claim_all(CUcontext context,
                                                        std::optional<int> whole_device) noexcept;
  void put_back(std::vector<std::pair<std::uint64_t, Held>> entries) noexcept;

 private:
  struct alignas(64) Shard {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, Held> entries;
  };

  static constexpr std::size_t shard_count = 64;

  Shard& shard_of(std::uint64_t key) noexcept;

  std::array<Shard, shard_count> shards_;
};

// An executable graph's memory, by device.
using GraphBytes = std::vector<std::pair<std::shared_ptr<Pool>, std::uint64_t>>;

struct Accounts {
  LiveTable live;
  Contexts contexts;
  Pools pools;
  PhysicalMemory physical;
  std::mutex graphs_mutex;
  std::unordered_map<CUgraphExec, GraphBytes> graphs;
};

// This process's; never destroyed, new in the child of a fork.
Accounts& accounts() noexcept;

// Takes bytes from the ledger, if need be after pools have let go of what they hold unused.
bool take_bytes(int device, std::uint64_t size_bytes) noexcept;
// Gives back what the allocation held.
void give_held(const Held& held) noexcept;

// The device's executable graphs are gone, with its primary context.
void give_graphs(int device) noexcept;

// Calls the driver for an allocation of the current context that takes so many bytes. key() is the
// new allocation's address or handle.
template <typename Call, typename Key>
CUresult allocate(Kind kind, std::uint64_t size_bytes, Call&& call, Key&& key) {
  Place place;
  const Standing standing = current_place(&place);
  if (standing == Standing::nowhere) {
    return call();
  }
  if (standing == Standing::refused || !take_bytes(place.device, size_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = call();
  if (result == CUDA_SUCCESS) {
    accounts().live.put(kind, key(), {size_bytes, place.device, place.context, nullptr});
  } else {
    give_held({size_bytes, place.device, nullptr, nullptr});
  }
  return result;
}

// Calls the driver to free one; an unknown one is the driver's affair alone.
template <typename Call>
CUresult release(Kind kind, std::uint64_t key, Call&& call) {
  std::optional<Held> held = accounts().live.claim(kind, key);
  const CUresult result = call();
  if (held && result == CUDA_SUCCESS) {
    give_held(*held);
  } else if (held) {
    accounts().live.put(kind, key, std::move(*held));
  }
  return result;
}

}  // namespace hippogriff::shim
