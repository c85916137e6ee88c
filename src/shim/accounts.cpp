// The table of live allocations, and the way from it to the ledger.
#include "shim/accounts.hpp"

#include "shim/ledger.hpp"

#include <pthread.h>

#include <atomic>
#include <new>

namespace hippogriff::shim {
namespace {

// Array handles are host addresses and memory has device addresses: the kind keeps them apart.
std::uint64_t tagged(Kind kind, std::uint64_t key) noexcept {
  return key ^ (static_cast<std::uint64_t>(kind) << 62U);
}

// In static memory, never destroyed; in the child of a fork made anew over the parent's, whose
// parts on the heap are left there.
std::atomic<Accounts*>& accounts_pointer() noexcept {
  alignas(Accounts) static unsigned char memory[sizeof(Accounts)];
  static std::atomic<Accounts*> pointer{[] {
    ::pthread_atfork(nullptr, nullptr, [] {
      // The parent's other threads may have held the locks, and the memory is the parent's.
      accounts_pointer().store(new (memory) Accounts, std::memory_order_release);
      ledger().forked();
      forget_places();
    });
    return new (memory) Accounts;
  }()};
  return pointer;
}

}  // namespace

Accounts& accounts() noexcept {
  return *accounts_pointer().load(std::memory_order_acquire);
}

bool take_bytes(int device, std::uint64_t size_bytes) noexcept {
  if (ledger().take(device, size_bytes, Patience::none)) {
    return true;
  }
  for (const std::shared_ptr<Pool>& pool : accounts().pools.of_device(device)) {
    pool->trim();
  }
  return ledger().take(device, size_bytes, Patience::may_wait);
}

void give_held(const Held& held) noexcept {
  if (held.pool != nullptr) {
    held.pool->free(held.size_bytes);
  } else {
    ledger().give(held.device, held.size_bytes);
  }
}

void give_graphs(int device) noexcept {
  const auto give = [device](const GraphBytes::value_type& part) {
    const bool is_gone = part.first->device() == device;
    if (is_gone) {
      part.first->free(part.second);
    }
    return is_gone;
  };
  Accounts& books = accounts();
  const std::lock_guard lock(books.graphs_mutex);
  for (auto& [handle, parts] : books.graphs) {
    std::erase_if(parts, give);
  }
  std::erase_if(books.graphs, [](const auto& entry) { return entry.second.empty(); });
}

LiveTable::Shard& LiveTable::shard_of(std::uint64_t key) noexcept {
  // Addresses are multiples of some hundred bytes: the high bits of a product mix best.
  return shards_[(key * 0x9E3779B97F4A7C15U) >> 58U];
}

void LiveTable::put(Kind kind, std::uint64_t key, Held held) noexcept {
  const std::uint64_t name = tagged(kind, key);
  std::optional<Held> lost;
  try {
    Shard& shard = shard_of(name);
    const std::lock_guard lock(shard.mutex);
    const auto [entry, inserted] = shard.entries.try_emplace(name);
    if (!inserted) {
      lost = std::move(entry->second);
    }
    entry->second = std::move(held);
  } catch (const std::bad_alloc&) {
    return;
  }
  if (lost) {
    give_held(*lost);
  }
}

std::optional<Held> LiveTable::claim(Kind kind, std::uint64_t key) noexcept {
  const std::uint64_t name = tagged(kind, key);
  Shard& shard = shard_of(name);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.entries.find(name);
  if (found == shard.entries.end()) {
    return std::nullopt;
  }
  std::optional<Held> held = std::move(found->second);
  shard.entries.erase(found);
  return held;
}

std::vector<std::pair<std::uint64_t, Held>> LiveTable::claim_all(
    CUcontext context, std::optional<int> whole_device) noexcept {
  std::vector<std::pair<std::uint64_t, Held>> claimed;
  const auto claim_dying = [&](const std::pair<const std::uint64_t, Held>& entry) {
    const Held& held = entry.second;
    const bool dies = held.pool == nullptr ? held.context == context : whole_device == held.device;
    if (dies) {
      claimed.emplace_back(entry);
    }
    return dies;
  };
  try {
    for (Shard& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      std::erase_if(shard.entries, claim_dying);
    }
  } catch (const std::bad_alloc&) {
    return claimed;  // what is left stays counted
  }
  return claimed;
}

void LiveTable::put_back(std::vector<std::pair<std::uint64_t, Held>> entries) noexcept {
  for (auto& [name, held] : entries) {
    put(Kind::memory, name, std::move(held));  // names are tagged already; memory's tag is none
  }
}

}  // namespace hippogriff::shim
