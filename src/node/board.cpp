// Order matters where a process may be killed between two steps: a group's sum is raised first and
// lowered last, so that it is never less than what its members use.
#include "node/board.hpp"

#include "node/arrays.hpp"
#include "node/books_image.hpp"
#include "node/layout.hpp"
#include "node/transfers.hpp"

#include <algorithm>
#include <span>

namespace hippogriff::node {

namespace {

constexpr auto relaxed = std::memory_order_relaxed;

void subtract(std::atomic<std::uint64_t>& sum, std::uint64_t size_bytes) noexcept {
  std::uint64_t seen = sum.load(relaxed);
  while (!sum.compare_exchange_weak(seen, seen - std::min(seen, size_bytes), relaxed)) {
  }
}

DeviceUse* find_use(ClientBoard& board, std::uint64_t key) noexcept {
  const auto at = std::ranges::find_if(
      board.uses, [&](const DeviceUse& use) { return use.key.load(relaxed) == key; });
  return at != board.uses.end() ? &*at : nullptr;
}

// `left` is what the board said when its owner was found dead: whoever has the slot since began
// anew.
void leave_group(SegmentLayout& shared,
                 std::uint32_t leader,
                 DeviceUse& use,
                 std::uint64_t left) noexcept {
  if (!use.used_bytes.compare_exchange_strong(left, 0, relaxed)) {
    return;
  }
  DeviceUse* group = find_use(shared.boards.at(leader), use.key.load(relaxed));
  if (left != 0 && group != nullptr) {
    subtract(group->group_used_bytes, left);
  }
}

}  // namespace

std::uint64_t device_key(std::string_view name) noexcept {
  return std::max<std::uint64_t>(checksum_of(std::as_bytes(std::span(name))), 1);
}

Board::Board(const Segment& segment, const ClientSlot& slot) : segment_(segment), slot_(slot) {}

DeviceUse* Board::find(std::uint32_t client, std::uint64_t key) const noexcept {
  return find_use(segment_.shared().boards.at(client), key);
}

bool Board::add_device(std::uint64_t key) noexcept {
  if (find(slot_.index(), key) != nullptr) {
    return true;
  }
  for (DeviceUse& use : segment_.shared().boards.at(slot_.index()).uses) {
    std::uint64_t none = 0;
    if (use.key.compare_exchange_strong(none, key, relaxed) || none == key) {
      return true;
    }
  }
  return false;
}

void Board::set_granted(std::uint64_t key, std::uint64_t size_bytes) noexcept {
  if (DeviceUse* use = find(slot_.index(), key)) {
    use->granted_bytes.store(size_bytes, relaxed);
  }
}

void Board::set_leaders_grant(std::uint64_t key, std::uint64_t size_bytes) noexcept {
  if (DeviceUse* use = slot_.leader_is_in_place() ? find(slot_.leader(), key) : nullptr) {
    use->granted_bytes.store(size_bytes, relaxed);
  }
}

void Board::set_used(std::uint64_t key, std::uint64_t size_bytes) noexcept {
  if (DeviceUse* use = find(slot_.index(), key)) {
    use->used_bytes.store(size_bytes, relaxed);
  }
}

void Board::carry_on(std::uint64_t key, std::uint64_t used_bytes, bool resumed) noexcept {
  DeviceUse* own = find(slot_.index(), key);
  if (own == nullptr) {
    return;
  }
  const std::uint64_t carried = own->used_bytes.exchange(used_bytes, relaxed);
  DeviceUse* group = slot_.follows() && slot_.leader_is_in_place() && resumed
                         ? find(slot_.leader(), key)
                         : nullptr;
  if (group != nullptr && used_bytes > carried) {
    group->group_used_bytes.fetch_add(used_bytes - carried, relaxed);
  } else if (group != nullptr) {
    subtract(group->group_used_bytes, carried - used_bytes);
  }
}

bool Board::try_take(DeviceUse& group, std::uint64_t size_bytes) const noexcept {
  std::uint64_t seen = group.group_used_bytes.load(relaxed);
  for (;;) {
    const std::uint64_t granted = group.granted_bytes.load(relaxed);
    if (seen > granted || size_bytes > granted - seen) {
      return false;
    }
    if (group.group_used_bytes.compare_exchange_weak(seen, seen + size_bytes, relaxed)) {
      return true;
    }
  }
}

bool Board::take(std::uint64_t key, std::uint64_t size_bytes) noexcept {
  DeviceUse* group = slot_.leader_is_in_place() ? find(slot_.leader(), key) : nullptr;
  DeviceUse* own = find(slot_.index(), key);
  if (group == nullptr || own == nullptr) {
    return false;
  }
  if (!try_take(*group, size_bytes) && !(count_dead_out(key) && try_take(*group, size_bytes))) {
    return false;
  }
  own->used_bytes.fetch_add(size_bytes, relaxed);
  return true;
}

void Board::give(std::uint64_t key, std::uint64_t size_bytes) noexcept {
  if (DeviceUse* own = find(slot_.index(), key)) {
    subtract(own->used_bytes, size_bytes);
  }
  DeviceUse* group = slot_.leader_is_in_place() ? find(slot_.leader(), key) : nullptr;
  if (group != nullptr) {
    subtract(group->group_used_bytes, size_bytes);
  }
}

// True when there was anything of the dead.
bool Board::count_dead_out(std::uint64_t key) const noexcept {
  bool found = false;
  for (std::uint32_t client = 0; client < clients_max; ++client) {
    DeviceUse* use = client != slot_.index() ? find(client, key) : nullptr;
    const std::uint64_t used = use != nullptr ? use->used_bytes.load(relaxed) : 0;
    if (used != 0 && slot_.is_fellow(client) && !slot_.lives(client)) {
      leave_group(segment_.shared(), slot_.leader(), *use, used);
      found = true;
    }
  }
  return found;
}

std::uint64_t Board::granted(std::uint64_t key) const noexcept {
  const DeviceUse* use = find(slot_.leader(), key);
  return use != nullptr ? use->granted_bytes.load(relaxed) : 0;
}

std::uint64_t Board::group_used(std::uint64_t key) const noexcept {
  const DeviceUse* use = find(slot_.leader(), key);
  return use != nullptr ? use->group_used_bytes.load(relaxed) : 0;
}

std::uint64_t Board::used(std::uint32_t client, std::uint64_t key) const noexcept {
  const DeviceUse* use = find(client, key);
  return use != nullptr ? use->used_bytes.load(relaxed) : 0;
}

void clear_board(const Segment& segment,
                 std::uint32_t client,
                 const ClientIdentity& former) noexcept {
  SegmentLayout& shared = segment.shared();
  ClientBoard& board = shared.boards.at(client);
  const ClientIdentity leader =
      former.leader < clients_max ? read_identity(shared, former.leader) : ClientIdentity{};
  const bool followed = former.checksum != 0 && former.leader != client && leader.checksum != 0 &&
                        leader.term == former.leader_term;
  for (DeviceUse& use : board.uses) {
    if (followed) {
      leave_group(shared, former.leader, use, use.used_bytes.load(relaxed));
    }
    use.used_bytes.store(0, relaxed);
    use.group_used_bytes.store(0, relaxed);
    use.granted_bytes.store(0, relaxed);
    use.key.store(0, relaxed);
  }
  clear_transfers(shared, client);
  clear_arrays(shared, client);
}

}  // namespace hippogriff::node
