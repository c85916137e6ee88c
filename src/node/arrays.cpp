// The counts of a record are written one by one, while its sequence stays: who reads them in
// between has some that are older than the others, by a tenth of a second.
#include "node/arrays.hpp"

#include "node/attachment.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

namespace hippogriff::node {

namespace {

constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

std::uint64_t number(const std::atomic<std::uint64_t>& word) {
  return std::min(word.load(acquire), shown_number_max);
}

std::optional<SeenArray> read_record(const ArrayRecord& record, std::int64_t now_ns) {
  return read_whole(record, [&] {
    SeenArray seen;
    seen.shown = {.device = record.device.load(acquire),
                  .drive = read_drive(record.drive),
                  .size_bytes = number(record.size_bytes),
                  .cache_bytes = number(record.cache_bytes),
                  .line_bytes = number(record.line_bytes)};
    seen.opened_ns = std::clamp<std::int64_t>(record.opened_ns.load(acquire), 0, now_ns);
    seen.counted_ns = std::clamp(record.counted_ns.load(acquire), seen.opened_ns, now_ns);
    seen.counts = {.accesses = number(record.accesses),
                   .counts_accesses = record.uncounted.load(acquire) == 0,
                   .misses = number(record.misses),
                   .overwritten = number(record.overwritten),
                   .written_back = number(record.written_back),
                   .read_bytes = number(record.read_bytes),
                   .written_bytes = number(record.written_bytes),
                   .in_flight = number(record.in_flight),
                   .drive_answers = number(record.drive_answers),
                   .drive_least_ns = number(record.drive_least_ns),
                   .drive_limit = number(record.drive_limit)};
    return seen;
  });
}

void write_counts(ArrayRecord& record, const ArrayCounts& counts, std::int64_t now_ns) {
  record.accesses.store(counts.accesses, release);
  record.uncounted.store(counts.counts_accesses ? 0 : 1, release);
  record.misses.store(counts.misses, release);
  record.overwritten.store(counts.overwritten, release);
  record.written_back.store(counts.written_back, release);
  record.read_bytes.store(counts.read_bytes, release);
  record.written_bytes.store(counts.written_bytes, release);
  record.in_flight.store(counts.in_flight, release);
  record.drive_answers.store(counts.drive_answers, release);
  record.drive_least_ns.store(counts.drive_least_ns, release);
  record.drive_limit.store(counts.drive_limit, release);
  record.counted_ns.store(now_ns, release);
}

}  // namespace

void clear_arrays(SegmentLayout& shared, std::uint32_t client) noexcept {
  hide_client(shared.showing_arrays, client);
  ClientBoard& board = shared.boards.at(client);
  clear_records(board.arrays, board.unshown_arrays);
}

ArrayTable::ArrayTable(const Segment& segment, const ClientSlot& slot) noexcept
    : segment_(segment),
      slot_(slot),
      own_(segment.shared().boards.at(slot.index()).arrays,
           segment.shared().boards.at(slot.index()).unshown_arrays,
           segment.shared().showing_arrays,
           slot.index()) {}

std::uint64_t ArrayTable::unshown(std::uint32_t client) const noexcept {
  return read_unshown(segment_.shared().boards.at(client).unshown_arrays);
}

std::vector<SeenArray> ArrayTable::of_all() const {
  return look(true);
}

std::vector<SeenArray> ArrayTable::of_others() const {
  return look(false);
}

std::vector<SeenArray> ArrayTable::look(bool own_too) const {
  const SegmentLayout& shared = segment_.shared();
  const std::int64_t now_ns = monotonic_ns();
  std::vector<SeenArray> all;
  for (const std::uint32_t client : clients_that_show(shared.showing_arrays)) {
    const bool own = client == slot_.index();
    const ClientIdentity identity = read_identity(shared, client);
    if (identity.checksum == 0 || (own && !own_too) ||
        (!own && !slot_.lives_in_term(client, identity.term))) {
      continue;
    }
    const auto& records = shared.boards.at(client).arrays;
    for (std::uint32_t index = 0; index < records.size(); ++index) {
      if (auto seen = read_record(records.at(index), now_ns)) {
        seen->client = client;
        seen->pid = identity.pid;
        seen->record = index;
        all.push_back(*seen);
      }
    }
  }
  return all;
}

void ArrayNotice::show(const ShownArray& shown) noexcept {
  ArrayRecord* const at = record();
  if (at == nullptr) {
    return;
  }
  const std::int64_t now_ns = monotonic_ns();
  write_whole(*at, [&] {
    at->device.store(shown.device, release);
    write_drive(at->drive, shown.drive);
    at->size_bytes.store(shown.size_bytes, release);
    at->cache_bytes.store(shown.cache_bytes, release);
    at->line_bytes.store(shown.line_bytes, release);
    at->opened_ns.store(now_ns, release);
    write_counts(*at, {}, now_ns);
  });
  table_->own().show();
}

void ArrayNotice::count(const ArrayCounts& counts) noexcept {
  if (ArrayRecord* const at = record()) {
    write_counts(*at, counts, monotonic_ns());
  }
}

std::vector<SeenArray> ArrayNotice::others() const {
  return page_->wiped() ? std::vector<SeenArray>{} : table_->of_others();
}

void ArrayNotice::end() noexcept {
  if (!page_->wiped() && !std::exchange(ended_, true)) {
    table_->own().give(record_);
  }
}

}  // namespace hippogriff::node
