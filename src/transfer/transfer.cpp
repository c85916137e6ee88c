// The state of one transfer.
#include "transfer/transfer.hpp"

#include "base/own_descriptor.hpp"
#include "base/page_size.hpp"
#include "checksum/landing_checksums.hpp"
#include "transfer/read_ahead_file.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

namespace hippogriff {

namespace {

// The last pieces of a transfer take less, but for a drive's.
constexpr std::chrono::microseconds awake_before_end{1000};

}  // namespace

Transfer::Transfer(TransferRequest request,
                   RoutingDecision decision,
                   WorkMap::Classifier classifier,
                   Warmth otherwise)
    : work(request.extent,
           std::move(classifier),
           otherwise,
           request.new_memory || request.checksums != nullptr
               ? [this](Range longest) { return claimed_bytes(longest); }
               : WorkMap::Shorten()),
      host_memory(request.host_memory_bytes),
      request_(std::move(request)),
      decision_(std::move(decision)),
      path_(request_.file == nullptr ? "" : request_.file->facts().path),
      replaces_(request_.replaces != nullptr),
      read_ahead_bytes_(request_.read_ahead == nullptr
                            ? std::nullopt
                            : std::optional(request_.read_ahead->read_bytes())),
      address_(request_.address.value) {}

Transfer::~Transfer() {
  if (completion_fd_ >= 0) {
    close(completion_fd_);
  }
}

// Two threads that touch a new huge page at once both clear it, and one has done so for nothing;
// two that bring a block leave it to the second to hash, for whom it is in no cache.
std::uint64_t Transfer::claimed_bytes(Range longest) const {
  const auto whole_blocks = [&](std::uint64_t size) {
    return request_.checksums == nullptr
               ? size
               : request_.checksums->whole_blocks_of({longest.offset, size});
  };
  if (!request_.new_memory) {
    return whole_blocks(longest.size);
  }
  std::uint64_t to_page_end = 0;
  for_each_part(longest, [&](const Segment& part) {
    std::uint64_t past_page = (part.address.value + part.range.size) % huge_page_bytes;
    for (; past_page < part.range.size; past_page += huge_page_bytes) {
      const std::uint64_t size = whole_blocks(part.range.end() - past_page - longest.offset);
      if (size <= piece_bytes_max) {
        to_page_end = std::max(to_page_end, size);
        break;
      }
    }
  });
  return to_page_end > 0 ? to_page_end : whole_blocks(std::min(longest.size, piece_bytes_max));
}

DeviceAddress Transfer::address_of(std::uint64_t file_offset) const {
  HIPPO_ASSERT(request_.destinations.empty());
  return address() + (file_offset - request_.extent.offset);
}

std::vector<CopyPart> Transfer::copies_of(Range piece, const std::byte* from) const {
  std::vector<CopyPart> copies;
  for_each_part(piece, [&](const Segment& part) {
    copies.push_back({part.address, from + (part.range.offset - piece.offset), part.range.size});
  });
  return copies;
}

void Transfer::landed(Range range) {
  if (request_.checksums != nullptr) {
    request_.checksums->landed(range);
  }
}

void Transfer::piece_done(Lane lane, Range piece) {
  if (lane != Lane::direct) {
    landed(piece);
  }
  std::uint64_t moved_bytes = piece.size;
  if (lane == Lane::direct && !request_.destinations.empty()) {
    moved_bytes = 0;
    for_each_part(piece, [&](const Segment& part) { moved_bytes += part.range.size; });
  }
  {
    const std::lock_guard lock(mutex_);
    done_.insert(piece);
    LaneTally& tally = tallies_[static_cast<std::size_t>(lane)];
    tally.bytes += piece.size;
    tally.moved_bytes += moved_bytes;
  }
  const std::uint64_t done = bytes_done_ += piece.size;
  if (notice != nullptr) {
    notice->set_done(done);
  }
}

void Transfer::fail(Failure failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.status == Status::ok) {
      failure_ = std::move(failure);
    }
  }
  stopping_ = true;
}

bool Transfer::failed() const {
  return status() != Status::ok;
}

Status Transfer::status() const {
  const std::lock_guard lock(mutex_);
  return failure_.status;
}

void Transfer::tally_task(Lane lane, Clock::time_point begin, double cpu_seconds) {
  const std::lock_guard lock(mutex_);
  LaneTally& tally = tallies_[static_cast<std::size_t>(lane)];
  if (tally.channels == 0 || begin < tally.first) {
    tally.first = begin;
  }
  ++tally.channels;
  tally.last = std::max(tally.last, Clock::now());
  tally.cpu_seconds += cpu_seconds;
}

LaneTally Transfer::tally(Lane lane) const {
  const std::lock_guard lock(mutex_);
  return tallies_[static_cast<std::size_t>(lane)];
}

void Transfer::allocate() {
  set_address(device().allocate_now(request_.extent.size));
  if (allocated_hook_) {
    allocated_hook_(*this);
  }
}

void Transfer::run_released_hook() {
  std::call_once(released_once_, [this] {
    if (released_hook_) {
      released_hook_(*this);
    }
  });
}

void Transfer::drained(std::uint64_t bytes) {
  const std::uint64_t all = drained_bytes_ += bytes;
  if (all == request_.extent.size) {
    run_released_hook();
    {
      const std::lock_guard lock(mutex_);
    }
    changed_.notify_all();
  }
}

void Transfer::cancel() {
  if (finished()) {
    return;
  }
  give_up({.status = Status::cancelled,
           .operation = request_.direction == Direction::send ? "send" : "recv",
           .object = path_});
}

void Transfer::give_up(Failure failure) {
  const std::lock_guard lock(mutex_);
  if (sealed_) {
    return;
  }
  if (failure_.status == Status::ok) {
    failure_ = std::move(failure);
  }
  stopping_ = true;
}

void Transfer::seal() {
  const std::lock_guard lock(mutex_);
  sealed_ = true;
}

bool Transfer::released_locked() const {
  return finished() || (drained_bytes_ == request_.extent.size && request_.extent.size > 0);
}

void Transfer::ends_soon() {
  if (!ends_soon_.exchange(true)) {
    {
      const std::lock_guard lock(mutex_);
    }
    changed_.notify_all();
  }
}

bool Transfer::wait(std::chrono::milliseconds timeout) {
  if (finished()) {
    return true;
  }
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return finished(); };
  const auto soon = [this] { return finished() || ends_soon_.load(); };
  if (timeout.count() < 0) {
    changed_.wait(lock, soon);
    stay_awake(lock, awake_before_end);
    changed_.wait(lock, ended);
    return true;
  }
  const auto end = Clock::now() + timeout;
  if (!changed_.wait_until(lock, end, soon)) {
    return false;
  }
  stay_awake(lock, std::min<Clock::duration>(awake_before_end, end - Clock::now()));
  return changed_.wait_until(lock, end, ended);
}

// A thread that sleeps takes 50 to 100 us to come back.
void Transfer::stay_awake(std::unique_lock<std::mutex>& lock, Clock::duration time) const {
  lock.unlock();
  const auto end = Clock::now() + time;
  while (!finished() && Clock::now() < end) {
    std::this_thread::yield();
  }
  lock.lock();
}

bool Transfer::wait_released(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto released = [this] { return released_locked(); };
  if (timeout.count() < 0) {
    changed_.wait(lock, released);
    return true;
  }
  return changed_.wait_for(lock, timeout, released);
}

hippogriff_progress Transfer::progress() const {
  const std::lock_guard lock(mutex_);
  return {.bytes_done = bytes_done_.load(),
          .bytes_total = request_.extent.size,
          .bytes_parked = parked.bytes(),
          .seconds = seconds_between(submitted, finished() ? finished_at_ : Clock::now()),
          .finished = finished() ? 1 : 0,
          .released = released_locked() ? 1 : 0};
}

std::vector<Range> Transfer::missing() const {
  const std::lock_guard lock(mutex_);
  if (replaces_ && failure_.status != Status::ok) {
    return {request_.extent};  // the new file never got its name
  }
  return done_.missing_from(request_.extent);
}

int Transfer::completion_fd() {
  const std::lock_guard lock(mutex_);
  if (completion_fd_ < 0) {
    completion_fd_ = own_descriptor(eventfd(finished() ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (completion_fd_ < 0) {
      throw_io("eventfd", "the handle's completion", no_offset, errno);
    }
  }
  return completion_fd_;
}

void Transfer::finish() {
  seal();
  // Where there is no memory for what a hook does, the transfer still ends.
  const auto run = [this](auto&& hook) {
    try {
      hook();
    } catch (...) {
      fail(current_failure());
    }
  };
  run([this] { run_released_hook(); });
  for (const auto& hook : std::exchange(hooks_, {})) {
    run([&] { hook(*this); });
  }
  if (notice != nullptr) {
    notice->end();
  }
  request_.read_ahead.reset();
  request_.replaces.reset();
  request_.file.reset();
  {
    const std::lock_guard lock(mutex_);
    HIPPO_ASSERT(!finished());
    after.reset();
    try {
      failure_message_ = failure_.status == Status::ok ? "" : failure_.message();
    } catch (...) {
      failure_message_ = "no memory";  // so short that it needs none
    }
    finished_at_ = Clock::now();
    finished_.store(true, std::memory_order_release);
    if (completion_fd_ >= 0) {
      eventfd_write(completion_fd_, 1);
    }
  }
  changed_.notify_all();
}

}  // namespace hippogriff
