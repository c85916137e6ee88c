// A transfer's words, and whose they are.
#include "node/transfers.hpp"

#include "node/attachment.hpp"
#include "node/layout.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace hippogriff::node {

namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

constexpr std::int64_t life_holds_ns = 100'000'000;

// The word that says what a transfer does.
constexpr std::uint64_t sends_bit = 1;
constexpr std::uint64_t wants_memory_bit = 2;
constexpr unsigned phase_shift = 8;
constexpr unsigned route_shift = 16;
constexpr unsigned requests_shift = 32;
constexpr unsigned channels_shift = 48;
constexpr std::uint64_t phase_mask = std::uint64_t{0xFF} << phase_shift;

std::uint64_t phase_word(TransferPhase phase, bool wants_memory) {
  return (std::uint64_t{static_cast<std::uint8_t>(phase)} << phase_shift) |
         (wants_memory ? wants_memory_bit : 0);
}

std::uint64_t pack(const ShownTransfer& shown) {
  return (shown.sends ? sends_bit : 0) | phase_word(shown.phase, shown.wants_memory) |
         (std::uint64_t{shown.route} << route_shift) |
         (std::uint64_t{shown.drive_requests} << requests_shift) |
         (std::uint64_t{shown.channels} << channels_shift);
}

void unpack(std::uint64_t word, ShownTransfer& shown) {
  const auto phase = static_cast<std::uint8_t>(word >> phase_shift);
  shown.sends = (word & sends_bit) != 0;
  shown.wants_memory = (word & wants_memory_bit) != 0;
  shown.phase = phase <= static_cast<std::uint8_t>(TransferPhase::waiting)
                    ? static_cast<TransferPhase>(phase)
                    : TransferPhase::moving;
  shown.route = static_cast<std::uint8_t>(word >> route_shift);
  shown.drive_requests = static_cast<std::uint16_t>(word >> requests_shift);
  shown.channels = static_cast<std::uint16_t>(word >> channels_shift);
}

std::optional<ShownTransfer> read_record(const TransferRecord& record, std::int64_t now_ns) {
  return read_whole(record, [&] {
    ShownTransfer shown;
    shown.device = record.device.load(acquire);
    shown.drive = read_drive(record.drive);
    unpack(record.shape.load(acquire), shown);
    shown.bytes_total = std::min(record.bytes_total.load(acquire), shown_number_max);
    shown.bytes_done = std::min(record.bytes_done.load(acquire), shown.bytes_total);
    shown.started_ns = std::clamp<std::int64_t>(record.started_ns.load(acquire), 0, now_ns);
    return shown;
  });
}

}  // namespace

void clear_transfers(SegmentLayout& shared, std::uint32_t client) noexcept {
  hide_client(shared.showing, client);
  ClientBoard& board = shared.boards.at(client);
  clear_records(board.transfers, board.unshown_transfers);
}

TransferTable::TransferTable(const Segment& segment, const ClientSlot& slot) noexcept
    : segment_(segment),
      slot_(slot),
      own_(segment.shared().boards.at(slot.index()).transfers,
           segment.shared().boards.at(slot.index()).unshown_transfers,
           segment.shared().showing,
           slot.index()) {}

std::uint64_t TransferTable::unshown(std::uint32_t client) const noexcept {
  return read_unshown(segment_.shared().boards.at(client).unshown_transfers);
}

std::vector<SeenTransfer> TransferTable::of_others() {
  return look(false);
}

std::vector<SeenTransfer> TransferTable::of_all() {
  return look(true);
}

std::vector<SeenTransfer> TransferTable::look(bool own_too) {
  const SegmentLayout& shared = segment_.shared();
  const std::int64_t now_ns = monotonic_ns();
  std::vector<SeenTransfer> seen;
  for (const std::uint32_t client : clients_that_show(shared.showing)) {
    const bool own = client == slot_.index();
    const ClientIdentity identity = read_identity(shared, client);
    if (identity.checksum == 0 || (own && !own_too)) {
      continue;
    }
    for (const TransferRecord& record : shared.boards.at(client).transfers) {
      auto shown = read_record(record, now_ns);
      if (shown && (own || lives(client, identity.term, now_ns))) {
        seen.push_back({.client = client, .pid = identity.pid, .shown = std::move(*shown)});
      }
    }
  }
  return seen;
}

// To ask costs system calls, so what was heard lately counts.
bool TransferTable::lives(std::uint32_t client, std::uint32_t term, std::int64_t now_ns) {
  const std::scoped_lock turn(lives_mutex_);
  Life& life = lives_.at(client);
  if (life.looked_ns == 0 || life.term != term || now_ns - life.looked_ns > life_holds_ns) {
    life = {.term = term, .lives = slot_.lives_in_term(client, term), .looked_ns = now_ns};
  }
  return life.lives;
}

void TransferNotice::show(const ShownTransfer& shown) noexcept {
  TransferRecord* const at = record();
  if (at == nullptr) {
    return;
  }
  write_whole(*at, [&] {
    at->device.store(shown.device, release);
    write_drive(at->drive, shown.drive);
    at->shape.store(pack(shown), release);
    at->bytes_total.store(shown.bytes_total, release);
    at->bytes_done.store(shown.bytes_done, release);
    at->started_ns.store(shown.started_ns, release);
  });
  table_->own().show();
}

void TransferNotice::set_phase(TransferPhase phase, bool wants_memory) noexcept {
  if (TransferRecord* const at = record()) {
    const std::uint64_t kept = at->shape.load(relaxed) & ~(phase_mask | wants_memory_bit);
    at->shape.store(kept | phase_word(phase, wants_memory), release);
  }
}

void TransferNotice::set_done(std::uint64_t bytes_done) noexcept {
  if (TransferRecord* const at = record()) {
    at->bytes_done.store(bytes_done, release);
  }
}

void TransferNotice::end() noexcept {
  if (!page_->wiped() && !ended_.exchange(true)) {
    table_->own().give(record_);
  }
}

}  // namespace hippogriff::node
