// The loop of a controller's thread: changes, commands, completions of the drive, sleep.
#include "array/controller_thread.hpp"

#include "array/overlay.hpp"
#include "base/error.hpp"
#include "base/quiet_thread.hpp"
#include "node/attachment.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

namespace hippogriff::ondemand {

namespace {

constexpr std::uint32_t commands_in_turn = 64;  // of one queue, before the next one has its turn
constexpr std::uint32_t rounds_awake = 64;
constexpr std::uint32_t rounds_unseen = 16;  // between two looks at the clock
constexpr std::chrono::milliseconds show_interval{100};
constexpr std::chrono::nanoseconds io_look{20'000};
constexpr std::uint64_t longest_sleep_ns = 500'000'000;

template <typename Body>
std::thread arrays_thread(const char* name, Body body) {
  try {
    return quiet_thread(name, std::move(body));
  } catch (const std::system_error& error) {
    throw Error({.status = Status::out_of_host_memory,
                 .operation = "start a thread for",
                 .object = "arrays",
                 .errno_value = error.code().value(),
                 .detail = "the user or the control group may have no more (ulimit -u, pids.max)"});
  }
}

}  // namespace

ControllerThread::Served::Served(std::shared_ptr<ServedArray> the_array, std::size_t the_index)
    : array(std::move(the_array)),
      index(the_index),
      queue(array->options().queues[index], array->options().counter_base),
      pending(array->options().queues[index].depth) {
  for (std::size_t slot = 0; slot < pending.size(); ++slot) {
    pending[slot].served = this;
    pending[slot].slot = static_cast<std::uint16_t>(slot);
  }
}

ControllerThread::~ControllerThread() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    for (const auto& array : present_) {
      if (const auto held = array.lock()) {
        held->end(Ending::stopped);
      }
    }
  }
  changed();
  if (thread_.joinable()) {
    thread_.join();
  }
  flush_wanted_.notify_all();
  hint_given_.notify_all();
  for (std::thread* const each : {&flusher_, &hinter_}) {
    if (each->joinable()) {
      each->join();
    }
  }
}

void ControllerThread::attach(const std::shared_ptr<ServedArray>& array,
                              const std::vector<std::size_t>& queues) {
  {
    const std::scoped_lock lock(mutex_);
    if (dead_) {
      array->note_failure(death_);
      array->end(Ending::controller_died);
      return;
    }
    start_locked();
    present_.push_back(array);
    for (const std::size_t index : queues) {
      arriving_.push_back(std::make_unique<Served>(array, index));
    }
  }
  changed();
}

bool ControllerThread::detach(const std::shared_ptr<ServedArray>& array,
                              std::chrono::steady_clock::time_point deadline) {
  const auto is_it = [&](const std::weak_ptr<ServedArray>& other) { return other.lock() == array; };
  std::unique_lock lock(mutex_);
  if (std::ranges::none_of(present_, is_it)) {
    return true;
  }
  leaving_.push_back(array);
  lock.unlock();
  changed();
  lock.lock();
  const bool gone = settled_.wait_until(lock, deadline, [&] {
    return dead_ || (std::ranges::none_of(present_, is_it) && hinting_ != array.get());
  });
  if (dead_) {
    std::erase_if(present_, is_it);  // its memory goes now: nobody may end it later
  }
  return gone;
}

void ControllerThread::start_locked() {
  if (!thread_.joinable()) {
    io_ = storage_->create_queue(io_depth);
    thread_ = arrays_thread("hippo-array", [this] { run(); });
  }
}

void ControllerThread::changed() {
  changes_.fetch_add(1, std::memory_order_seq_cst);
  wake_sleeper(wake_.sleeping);
}

void ControllerThread::run() noexcept {
  try {
    loop();
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    death_ = current_failure();
    for (const auto& array : present_) {
      if (const auto held = array.lock()) {
        held->note_failure(death_);
        held->end(Ending::controller_died);
      }
    }
  }
  while (copied_by_crew_ != 0) {  // and what the drive has begun: they write into arrays' memory
    for (const CopyJob* job = finished_copies_.take_all(); job != nullptr; job = job->next) {
      --copied_by_crew_;
    }
    std::this_thread::yield();
  }
  io_.reset();
  const std::scoped_lock lock(mutex_);
  dead_ = true;
  settled_.notify_all();
}

void ControllerThread::loop() {
  for (;;) {
    take_changes();
    bool busy = serve_all();
    busy = reap(std::chrono::nanoseconds(0)) || busy;
    busy = finish_copies() || busy;
    for (const auto& served : served_) {
      served->queue.tell(served->array->options().patience);
    }
    if (++rounds_ % rounds_unseen == 0) {
      show_arrays();
    }
    if (busy) {
      quiet_rounds_ = 0;
      continue;
    }
    {
      const std::scoped_lock lock(mutex_);
      if (stop_) {
        return;
      }
    }
    rest();
  }
}

// Arrays that came and that go. One that goes is served no more, and is gone when nothing of its
// own is under way.
void ControllerThread::take_changes() {
  const std::uint64_t changes = changes_.load(std::memory_order_acquire);
  if (changes == changes_seen_ && !somebody_leaves_) {
    return;
  }
  changes_seen_ = changes;
  finish_flushes();
  const std::scoped_lock lock(mutex_);
  for (const auto& served : arriving_) {
    served->drive = thread_drive(served->array->options().drive);
  }
  std::ranges::move(arriving_, std::back_inserter(served_));
  arriving_.clear();
  somebody_leaves_ = false;
  for (auto array = leaving_.begin(); array != leaving_.end();) {
    const auto is_its = [&](const std::unique_ptr<Served>& served) {
      return served->array == *array;
    };
    const bool under_way = std::ranges::any_of(served_, [&](const std::unique_ptr<Served>& served) {
      return is_its(served) && served->queue.under_way() != 0;
    });
    if (under_way) {
      somebody_leaves_ = true;  // look again
      ++array;
      continue;
    }
    std::erase_if(served_, is_its);
    std::erase_if(hints_, [&](const Hint& hint) { return hint.array == *array; });
    std::erase_if(present_, [&](const std::weak_ptr<ServedArray>& other) {
      return other.expired() || other.lock() == *array;
    });
    array = leaving_.erase(array);
    settled_.notify_all();
  }
  polls_ = std::ranges::any_of(
      served_, [](const std::unique_ptr<Served>& served) { return !served->queue.wakes(); });
}

// Each queue is the first in its turn: where the drive has room for few, the first takes it.
bool ControllerThread::serve_all() {
  const std::size_t count = served_.size();
  bool busy = false;
  first_ = first_ < count ? first_ : 0;
  has_begun_ = false;
  for (std::size_t i = first_; i < count; ++i) {
    busy = serve(*served_[i]) || busy;
  }
  for (std::size_t i = 0; i < first_; ++i) {
    busy = serve(*served_[i]) || busy;
  }
  first_ += has_begun_ ? 1 : 0;
  return busy;
}

// False when it had nothing to do, or no room for it.
bool ControllerThread::serve(Served& served) {
  const bool some = fetch(served);
  const bool first = begin_gathered(served.writes_first ? served.writes : served.reads);
  const bool second = begin_gathered(served.writes_first ? served.reads : served.writes);
  io_->submit_prepared();
  served.writes_first = served.writes_first != first;
  has_begun_ = has_begun_ || first || second;
  return first || second || some;
}

bool ControllerThread::fetch(Served& served) {
  // Writes may wait for long, and are no more than the queue has slots.
  const std::size_t gathered = served.reads.now.size() + served.reads.later.size();
  if (gathered >= commands_in_turn || has_ended(served)) {
    return false;
  }
  // Commands of an overlay begin at once.
  const bool gathers = served.array->backing().overlay == nullptr;
  const std::uint32_t count = std::min(served.queue.waiting(), commands_in_turn);
  std::uint64_t answered_bytes = 0;
  std::uint64_t answered = 0;
  std::uint32_t i = 0;
  for (; i < count && (gathers || io_->in_flight() + copied_by_crew_ < io_depth); ++i) {
    const Command command = served.queue.fetch();
    const std::uint64_t bytes = answer_at_once(served, command);
    if (bytes == 0) {
      begin(served, command);
    }
    answered_bytes += bytes;
    answered += bytes == 0 ? 0 : 1;
  }
  if (answered != 0) {
    has_begun_ = true;
    served.array->count_reads(served.index, answered, answered_bytes);
  }
  return i != 0;
}

// Answers a read of bytes that its submitter can reach with their address, and says how many there
// are; 0 for everything else. This is most of what a GPU's controller does, so it is short.
std::uint64_t ControllerThread::answer_at_once(Served& served, const Command& command) {
  const std::uint64_t bytes = std::uint64_t{command.block_count()} << block_shift;
  if (command.opcode != static_cast<std::uint8_t>(Opcode::read) ||
      command.first_block() > served.array->backing().size_bytes >> block_shift) {
    return 0;
  }
  const Range part{command.first_block() << block_shift, bytes};
  const std::byte* const place = served.array->in_place(part);
  if (place == nullptr) {
    return 0;
  }
  if (const Overlay* overlay = served.array->backing().overlay.get()) {
    const auto line = overlay->line_with(part);
    if (!line || overlay->has(*line)) {
      return 0;
    }
  }
  served.queue.post(command.id, {NvmeStatus::success, reinterpret_cast<std::uint64_t>(place)});
  return bytes;
}

// A command is the word of whoever submits: nothing in it is believed.
void ControllerThread::begin(Served& served, const Command& command) {
  Pending& pending = served.pending[command.id];
  const ServedArray::Options& options = served.array->options();
  pending.opcode = static_cast<Opcode>(command.opcode);
  pending.offset = 0;
  pending.next = nullptr;
  pending.is_alone = false;
  pending.done = 0;
  pending.attempts = 0;
  if (pending.opcode == Opcode::flush) {
    begin_flush(pending);
    return;
  }
  if (pending.opcode != Opcode::read && pending.opcode != Opcode::write) {
    refuse(pending, NvmeStatus::invalid_opcode, "there is no such command");
    return;
  }
  if (command.first_block() > (options.backing.size_bytes - 1) >> block_shift) {
    refuse(pending, NvmeStatus::out_of_range, "the block is beyond the array's end");
    return;
  }
  pending.offset = command.first_block() << block_shift;
  const std::size_t bytes = std::size_t{command.block_count()} << block_shift;
  const auto begin = reinterpret_cast<std::uintptr_t>(options.target.data());
  if (command.prp1 < begin || command.prp1 - begin > options.target.size() ||
      options.target.size() - (command.prp1 - begin) < bytes) {
    refuse(pending, NvmeStatus::invalid_field, "the memory is not the array's");
    return;
  }
  pending.memory = options.target.subspan(command.prp1 - begin, bytes);
  pending.wanted = std::min<std::uint64_t>(bytes, options.backing.size_bytes - pending.offset);
  pending.together = pending.wanted;
  if (pending.opcode == Opcode::write && !options.backing.writable) {
    refuse(pending, NvmeStatus::access_denied, "the array is read-only");
  } else if (options.backing.overlay != nullptr) {
    begin_overlay(pending);
  } else if (options.backing.in_memory()) {
    begin_memory(pending);
  } else {
    gather(pending);
  }
}

void ControllerThread::begin_memory(Pending& pending) {
  const ServedArray::Options& options = pending.served->array->options();
  std::byte* place = options.backing.memory.data() + pending.offset;
  if (pending.opcode == Opcode::write) {
    std::memcpy(place, pending.memory.data(), pending.wanted);
  } else {
    std::memcpy(pending.memory.data(), place, pending.wanted);
  }
  answer(pending);
}

bool ControllerThread::reap(std::chrono::nanoseconds timeout) {
  if (io_->in_flight() == 0) {
    return false;
  }
  std::array<IoCompletion, 64> completions{};
  const std::size_t count = io_->reap(completions, timeout);
  const std::int64_t now_ns = count == 0 ? 0 : node::monotonic_ns();
  for (std::size_t i = 0; i < count; ++i) {
    Pending& pending = *reinterpret_cast<Pending*>(completions[i].tag);
    note_answered(pending, completions[i].result, now_ns);
    advance(pending, completions[i].result);
  }
  for (auto& entry : thread_drives_) {
    entry.second.note_answers();
  }
  return count != 0;
}

// fdatasync may take seconds: another thread waits for it.
void ControllerThread::begin_flush(Pending& pending) {
  const Backing& backing = pending.served->array->backing();
  if (backing.in_memory() || backing.overlay != nullptr) {
    answer(pending);
    return;
  }
  try {
    const std::scoped_lock lock(mutex_);
    if (!flusher_.joinable()) {
      flusher_ = arrays_thread("hippo-flush", [this] { flush_loop(); });
    }
    to_flush_.push_back(&pending);
    flush_wanted_.notify_one();
  } catch (...) {  // the next one tries again
    answer_failure(pending, NvmeStatus::internal_error, current_failure());
  }
}

void ControllerThread::flush_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    flush_wanted_.wait(lock, [&] { return stop_ || !to_flush_.empty(); });
    if (to_flush_.empty()) {
      return;
    }
    Pending* pending = to_flush_.front();
    to_flush_.pop_front();
    lock.unlock();
    Failure failure;
    try {
      pending->served->array->sync();
    } catch (...) {
      failure = current_failure();
    }
    lock.lock();
    flushed_.emplace_back(pending, failure);
    changed();
  }
}

void ControllerThread::finish_flushes() {
  std::deque<std::pair<Pending*, Failure>> finished;
  {
    const std::scoped_lock lock(mutex_);
    finished.swap(flushed_);
  }
  for (const auto& [pending, failure] : finished) {
    if (failure.status == Status::ok) {
      answer(*pending);
    } else {
      answer_failure(*pending, NvmeStatus::write_fault, failure);
    }
  }
}

void ControllerThread::answer(Pending& pending) {
  for (Pending* each = &pending; each != nullptr; each = std::exchange(each->next, nullptr)) {
    const bool moves = each->opcode != Opcode::flush;
    if (each->opcode == Opcode::read) {
      std::ranges::fill(each->memory.subspan(each->wanted), std::byte{0});
    }
    each->served->array->count(each->served->index, each->opcode, moves ? each->wanted : 0);
    each->served->queue.post(each->slot, {NvmeStatus::success, 0});
  }
}

void ControllerThread::answer_failure(const Pending& pending,
                                      NvmeStatus status,
                                      const Failure& failure) {
  // A read may be one that nobody wanted; a write is of what somebody has written.
  const bool writes = pending.opcode == Opcode::write;
  pending.served->array->note_failure(
      failure, writes ? status : NvmeStatus::success, {pending.offset, pending.memory.size()});
  pending.served->array->count_failed(pending.served->index);
  pending.served->queue.post(pending.slot,
                             {status, 0},
                             {.offset = pending.offset + pending.done,
                              .errno_value = static_cast<std::uint32_t>(failure.errno_value),
                              .status = static_cast<std::uint32_t>(status)});
}

void ControllerThread::refuse(const Pending& pending, NvmeStatus status, const char* why) {
  answer_failure(pending,
                 status,
                 {.status = Status::invalid_argument,
                  .operation = "serve array",
                  .object = pending.served->array->backing().name,
                  .offset = pending.offset,
                  .detail = why});
}

bool ControllerThread::something_to_do() {
  return changes_.load(std::memory_order_seq_cst) != changes_seen_ ||
         std::ranges::any_of(served_, [](const std::unique_ptr<Served>& served) {
           return served->queue.has_untold() ||
                  (served->array->options().patience.ended() == Ending::none &&
                   served->queue.has_commands());
         });
}

// The thread of an array's first queue shows it: at most every `show_interval`, and while it sleeps
// as often as it wakes anyway.
void ControllerThread::show_arrays() {
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < show_interval) {
    return;
  }
  shown_ = now;
  show_drives();
  for (const auto& served : served_) {
    if (served->index == 0) {
      served->array->show(served->drive == nullptr ? nullptr : served->drive->shared);
    }
  }
}

// Nothing to do: waits for the drive, naps, or sleeps until somebody rings.
void ControllerThread::rest() {
  if (copied_by_crew_ != 0) {
    std::this_thread::yield();
    return;
  }
  if (io_->in_flight() != 0) {
    static_cast<void>(reap(io_look));
    return;
  }
  ++quiet_rounds_;
  if (quiet_rounds_ < rounds_awake) {
    std::this_thread::yield();
    return;
  }
  show_arrays();
  const std::uint64_t nap_ns = quiet_rounds_ < 10 * rounds_awake ? 20'000 : 100'000;
  const system_ref<std::uint32_t> sleeping(wake_.sleeping);
  sleeping.store(1, seq_cst);
  if (!something_to_do()) {
    sleep_on(wake_.sleeping, polls_ ? nap_ns : longest_sleep_ns);
  }
  sleeping.store(0, std::memory_order_seq_cst);
}

}  // namespace hippogriff::ondemand
