// Slots and the copies that use them.
#include "transfer/slot_ring.hpp"

#include <algorithm>
#include <utility>

namespace hippogriff {

namespace {

// Who waits for a slot keeps the link busy for all: some ask in time for the next batch. A long
// piece, alone on the link, takes twice as long as a spin: those of a load of 4 GiB cost 3 % of its
// CPU time. At the end of a transfer nobody sleeps: it would take longer by that sleep.
Polling polling_for(std::uint64_t piece_bytes, bool at_end) {
  constexpr std::uint64_t long_piece = 1 << 20;
  Polling polling{.longest_sleep = std::chrono::microseconds(50)};
  if (at_end) {
    polling.spin = std::chrono::microseconds(400);
  } else if (piece_bytes >= long_piece) {
    polling.spin = {};
  }
  return polling;
}

}  // namespace

SlotRing::SlotRing(LaneContext& context,
                   Transfer& transfer,
                   std::size_t capacity,
                   CopyStream& stream,
                   std::size_t room_bytes,
                   Pinbuffer::Growth growth)
    : context_(context),
      transfer_(transfer),
      budget_(transfer.host_memory),
      capacity_(capacity),
      stream_(stream),
      room_bytes_(room_bytes),
      growth_(growth) {}

SlotRing::~SlotRing() {
  for (Slot* slot : copying_) {
    bool complete = false;
    try {
      complete = wait_for(*slot->copied, device_timeout);
    } catch (...) {
      slot->copied.reset();  // what has not begun must not begin after the drain
      complete = stream_.drain();
    }
    if (!complete) {
      context_.pinbuffer.abandon(slot->memory);
    }
  }
  for (const auto& slot : slots_) {
    context_.pinbuffer.release(slot->memory);
    budget_.give_back(room_bytes_);
  }
}

Slot* SlotRing::try_idle() {
  if (!idle_.empty()) {
    Slot* slot = idle_.back();
    idle_.pop_back();
    return slot;
  }
  if (slots_.size() >= capacity_ || transfer_.work.unclaimed_bytes() == 0) {
    return nullptr;
  }
  // Nothing may be refused once the slot is lent.
  auto slot = std::make_unique<Slot>();
  slot->copied = stream_.create_copy();
  slot->room_bytes = room_bytes_;
  slots_.reserve(slots_.size() + 1);
  if (!budget_.take(room_bytes_)) {
    capacity_ = slots_.size();
    return nullptr;
  }
  slot->memory = acquire();
  if (slot->memory == nullptr) {
    budget_.give_back_unused(room_bytes_);
    return nullptr;
  }
  slots_.push_back(std::move(slot));
  return slots_.back().get();
}

// Others may have claimed all there was to do before there was a slot.
std::byte* SlotRing::acquire() {
  const auto patience =
      slots_.empty() ? std::chrono::nanoseconds(device_timeout) : std::chrono::nanoseconds(0);
  bool wanted = true;
  const auto ask = [&] {
    return wanted = !transfer_.stopping() && transfer_.work.unclaimed_bytes() > 0;
  };
  Pinbuffer& pinbuffer = context_.pinbuffer;
  const bool begins = is_short(transfer_) && Clock::now() < begin_ + Pinbuffer::late;
  const auto grows = begins ? growth_ : Pinbuffer::Growth::at_once;
  std::byte* memory = room_bytes_ < Pinbuffer::slot_bytes
                          ? pinbuffer.acquire_part(room_bytes_, patience, grows, ask)
                          : pinbuffer.acquire(patience, ask);
  if (memory == nullptr && wanted && slots_.empty()) {
    throw Error({.status = Status::timed_out,
                 .operation = "wait for the pinbuffer",
                 .object = context_.device.info().name,
                 .detail = "no slot came back in 60 s"});
  }
  return memory;
}

void SlotRing::make_idle(Slot* slot) {
  if (slots_.size() > 1 && context_.pinbuffer.is_short()) {
    give_back(slot);
  } else {
    idle_.push_back(slot);
  }
}

void SlotRing::give_back(const Slot* slot) {
  std::byte* memory = slot->memory;
  std::erase_if(slots_, [slot](const auto& each) { return each.get() == slot; });
  context_.pinbuffer.release(memory);
  budget_.give_back(room_bytes_);
}

// What joins the copies before it is queued is waited for, whatever is thrown.
void SlotRing::start_to_device(Slot* slot, const Transfer& transfer, const std::byte* memory) {
  slot->copy_begin = Clock::now();
  copying_.push_back(slot);
  stream_.start_to_device(*slot->copied, transfer.copies_of(slot->piece, memory));
}

void SlotRing::start_to_host(Slot* slot, DeviceAddress from, std::byte* memory) {
  slot->copy_begin = Clock::now();
  copying_.push_back(slot);
  stream_.start_to_host(*slot->copied, memory, from, slot->piece.size);
}

Slot* SlotRing::wait_copied(const char* operation) {
  if (copying_.empty()) {
    return nullptr;
  }
  Slot* slot = copying_.front();
  await_copy(context_,
             *slot->copied,
             operation,
             polling_for(slot->piece.size, transfer_.work.unclaimed_bytes() == 0));
  copying_.pop_front();
  copy_ended(*slot);
  return slot;
}

Slot* SlotRing::take_copied() {
  if (copying_.empty() || !copying_.front()->copied->completed()) {
    return nullptr;
  }
  Slot* slot = copying_.front();
  copying_.pop_front();
  copy_ended(*slot);
  return slot;
}

void SlotRing::copy_ended(const Slot& slot) const {
  if (context_.trace != nullptr) {
    context_.trace->slice(context_.copy_track,
                          "copy",
                          slot.copy_begin,
                          Clock::now(),
                          slot.piece.offset,
                          slot.piece.size);
  }
}

}  // namespace hippogriff
