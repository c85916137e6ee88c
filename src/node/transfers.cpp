// A record's sequence is even while it holds a transfer. Its writer makes it odd, writes, and makes
// it even again; a reader that finds the same even number before and after has seen one transfer,
// however often the record was used. A writer that is killed leaves it odd: there is nothing.
#include "node/transfers.hpp"

#include "node/attachment.hpp"
#include "node/layout.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace hippogriff::node {

namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

constexpr std::int64_t life_holds_ns = 100'000'000;
constexpr std::uint64_t bytes_max = std::uint64_t{1} << 62U;
constexpr std::uint64_t unshown_max = 1'000'000;

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

using DriveWords = std::array<std::uint64_t, drive_name_max / sizeof(std::uint64_t)>;

DriveWords drive_words(const std::string& name) {
  DriveWords words{};
  std::memcpy(words.data(), name.data(), std::min(name.size(), drive_name_max));
  return words;
}

std::string drive_name(const DriveWords& words) {
  std::array<char, drive_name_max> letters{};
  std::memcpy(letters.data(), words.data(), letters.size());
  std::string name;
  for (const char letter : letters) {
    if (letter == '\0') {
      break;
    }
    name += letter > ' ' && letter <= '~' ? letter : '?';
  }
  return name;
}

// Nothing when the record holds no transfer, or another one in the end.
std::optional<ShownTransfer> read_record(const TransferRecord& record, std::int64_t now_ns) {
  const std::uint64_t sequence = record.sequence.load(acquire);
  if (sequence % 2 != 0 || sequence == 0) {
    return std::nullopt;
  }
  ShownTransfer shown;
  DriveWords words{};
  shown.device = record.device.load(acquire);
  std::ranges::transform(
      record.drive, words.begin(), [](const auto& word) { return word.load(acquire); });
  unpack(record.shape.load(acquire), shown);
  shown.bytes_total = std::min(record.bytes_total.load(acquire), bytes_max);
  shown.bytes_done = std::min(record.bytes_done.load(acquire), shown.bytes_total);
  shown.started_ns = std::clamp<std::int64_t>(record.started_ns.load(acquire), 0, now_ns);
  if (record.sequence.load(relaxed) != sequence) {
    return std::nullopt;
  }
  shown.drive = drive_name(words);
  return shown;
}

void hide_client(SegmentLayout& shared, std::uint32_t client) noexcept {
  shared.showing.at(client / 64).fetch_and(~(std::uint64_t{1} << (client % 64)), release);
}

std::vector<std::uint32_t> clients_that_show(const SegmentLayout& shared) {
  std::vector<std::uint32_t> clients;
  for (std::uint32_t word = 0; word < shared.showing.size(); ++word) {
    std::uint64_t left = shared.showing.at(word).load(acquire);
    for (; left != 0; left &= left - 1) {
      clients.push_back(word * 64 + static_cast<std::uint32_t>(std::countr_zero(left)));
    }
  }
  return clients;
}

}  // namespace

void clear_transfers(SegmentLayout& shared, std::uint32_t client) noexcept {
  hide_client(shared, client);
  ClientBoard& board = shared.boards.at(client);
  board.unshown_transfers.store(0, relaxed);
  for (TransferRecord& record : board.transfers) {
    record.sequence.store(record.sequence.load(relaxed) | 1U, release);
  }
}

TransferRecord* TransferTable::begin() noexcept {
  ClientBoard& board = segment_.shared().boards.at(slot_.index());
  const std::scoped_lock turn(mutex_);
  const auto index = static_cast<std::size_t>(std::countr_one(used_));
  if (index >= transfers_shown_max) {
    board.unshown_transfers.fetch_add(1, relaxed);
    return nullptr;
  }
  used_ |= 1U << index;
  return &board.transfers.at(index);
}

void TransferTable::end(TransferRecord* record) noexcept {
  ClientBoard& board = segment_.shared().boards.at(slot_.index());
  const std::scoped_lock turn(mutex_);
  if (record == nullptr) {
    board.unshown_transfers.fetch_sub(1, relaxed);
    return;
  }
  record->sequence.store(record->sequence.load(relaxed) | 1U, release);
  used_ &= ~(1U << static_cast<unsigned>(record - board.transfers.data()));
  if (used_ == 0) {
    hide_client(segment_.shared(), slot_.index());
  }
}

std::uint64_t TransferTable::unshown(std::uint32_t client) const noexcept {
  const std::uint64_t count = segment_.shared().boards.at(client).unshown_transfers.load(relaxed);
  return count <= unshown_max ? count : 0;
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
  for (const std::uint32_t client : clients_that_show(shared)) {
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

void TransferTable::show_client() noexcept {
  std::atomic<std::uint64_t>& word = segment_.shared().showing.at(slot_.index() / 64);
  const std::uint64_t bit = std::uint64_t{1} << (slot_.index() % 64);
  if ((word.load(relaxed) & bit) == 0) {
    word.fetch_or(bit, release);
  }
}

void TransferNotice::show(const ShownTransfer& shown) noexcept {
  TransferRecord* const at = record();
  if (at == nullptr) {
    return;
  }
  const std::uint64_t odd = at->sequence.load(relaxed) | 1U;
  at->sequence.store(odd, relaxed);
  at->device.store(shown.device, release);
  const DriveWords words = drive_words(shown.drive);
  for (std::size_t index = 0; index < words.size(); ++index) {
    at->drive.at(index).store(words.at(index), release);
  }
  at->shape.store(pack(shown), release);
  at->bytes_total.store(shown.bytes_total, release);
  at->bytes_done.store(shown.bytes_done, release);
  at->started_ns.store(shown.started_ns, release);
  at->sequence.store(odd + 1, release);
  table_->show_client();
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
    table_->end(record_);
  }
}

}  // namespace hippogriff::node
