// A stream, the lock around it, and the copies that wait for their turn.
#include "transfer/copy_stream.hpp"

#include <algorithm>

namespace hippogriff {

namespace {

// Two: while one is copied, the next is there.
constexpr std::size_t batches_max = 2;
// So that slots come back in time.
constexpr std::size_t batch_bytes_max = std::size_t{16} << 20;

std::size_t bytes_of(std::span<const CopyPart> parts) {
  std::size_t bytes = 0;
  for (const CopyPart& part : parts) {
    bytes += part.size_bytes;
  }
  return bytes;
}

// Whether well or not: whose copy failed hears it from its own event.
bool has_ended(Event& batch) noexcept {
  try {
    return batch.completed();
  } catch (...) {
    return true;
  }
}

}  // namespace

StreamCopy::StreamCopy(CopyStream& stream, std::unique_ptr<Event> done)
    : stream_(stream), done_(std::move(done)) {}

StreamCopy::~StreamCopy() {
  if (state_.load(std::memory_order_acquire) == State::waiting) {
    stream_.withdraw(*this);
  }
}

bool StreamCopy::completed() {
  if (state_.load(std::memory_order_acquire) == State::waiting) {
    stream_.queue_waiting();
  }
  switch (state_.load(std::memory_order_acquire)) {
    case State::waiting:
      return false;
    case State::queued:
      return done_->completed();
    case State::failed:
      std::rethrow_exception(failure_);
    case State::none:
      break;
  }
  return true;
}

Stream& CopyStream::made() {
  if (stream_ == nullptr) {
    stream_ = device_.create_stream();
  }
  return *stream_;
}

void CopyStream::copy_to_device(std::span<const CopyPart> parts, Event& copied) {
  {
    const std::lock_guard lock(mutex_);
    made().copy_all_to_device(parts);
    stream_->record(copied);
  }
  queue_waiting();
}

void CopyStream::copy_to_host(std::byte* to,
                              DeviceAddress from,
                              std::size_t size_bytes,
                              Event& copied) {
  {
    const std::lock_guard lock(mutex_);
    made().copy_to_host(to, from, size_bytes);
    stream_->record(copied);
  }
  queue_waiting();
}

std::unique_ptr<StreamCopy> CopyStream::create_copy() {
  return std::make_unique<StreamCopy>(*this, device_.create_event());
}

void CopyStream::start_to_device(StreamCopy& copy, std::vector<CopyPart> parts) {
  copy.parts_ = std::move(parts);
  {
    const std::lock_guard lock(waiting_mutex_);
    waiting_.push_back(&copy);
    copy.state_.store(StreamCopy::State::waiting, std::memory_order_release);
  }
  queue_waiting();
}

void CopyStream::start_to_host(StreamCopy& copy,
                               std::byte* to,
                               DeviceAddress from,
                               std::size_t size_bytes) {
  try {
    copy_to_host(to, from, size_bytes, *copy.done_);
    copy.state_.store(StreamCopy::State::queued, std::memory_order_release);
  } catch (...) {
    copy.failure_ = std::current_exception();
    copy.state_.store(StreamCopy::State::failed, std::memory_order_release);
    throw;
  }
}

// Who has the lock queues for all, and looks again after giving it back: who found it taken
// meanwhile has gone on.
void CopyStream::queue_waiting() {
  bool queued = true;
  while (queued && any_waits()) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    queued = lock.owns_lock() && queue_next_batch();
  }
}

bool CopyStream::queue_next_batch() {
  made();
  if (batches_under_way() >= batches_max) {
    return false;
  }
  const std::vector<StreamCopy*> batch = take_batch();
  if (!batch.empty()) {
    queue_batch(batch);
  }
  return !batch.empty();
}

std::vector<StreamCopy*> CopyStream::take_batch() {
  const std::lock_guard lock(waiting_mutex_);
  std::size_t count = 0;
  std::size_t bytes = 0;
  while (count < waiting_.size() && bytes < batch_bytes_max) {
    bytes += bytes_of(waiting_[count++]->parts_);
  }
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<StreamCopy*> batch(waiting_.begin(), end);  // may throw: all still wait then
  waiting_.erase(waiting_.begin(), end);
  return batch;
}

// What fails as a whole is tried one by one, so that nobody fails by another's address. Every copy
// is queued or failed afterwards.
void CopyStream::queue_batch(std::span<StreamCopy* const> batch) noexcept {
  bool together = batch.size() > 1;
  if (together) {
    try {
      batch_parts_.clear();
      for (const StreamCopy* copy : batch) {
        batch_parts_.insert(batch_parts_.end(), copy->parts_.begin(), copy->parts_.end());
      }
      stream_->copy_all_to_device(batch_parts_);
    } catch (...) {
      together = false;
    }
  }
  for (StreamCopy* copy : batch) {
    try {
      if (!together) {
        stream_->copy_all_to_device(copy->parts_);
      }
      stream_->record(*copy->done_);
      copy->state_.store(StreamCopy::State::queued, std::memory_order_release);
    } catch (...) {
      copy->failure_ = std::current_exception();
      copy->state_.store(StreamCopy::State::failed, std::memory_order_release);
    }
  }
  try {
    if (events_.empty()) {
      events_.push_back(device_.create_event());
    }
    stream_->record(*events_.back());
    under_way_.push_back(std::move(events_.back()));
    events_.pop_back();
  } catch (...) {
    return;  // then this batch does not hold the next one up
  }
}

std::size_t CopyStream::batches_under_way() {
  while (!under_way_.empty() && has_ended(*under_way_.front())) {
    events_.push_back(std::move(under_way_.front()));
    under_way_.pop_front();
  }
  return under_way_.size();
}

bool CopyStream::any_waits() {
  const std::lock_guard lock(waiting_mutex_);
  return !waiting_.empty();
}

void CopyStream::withdraw(StreamCopy& copy) {
  const std::scoped_lock lock(mutex_, waiting_mutex_);  // so that nobody is queueing it
  std::erase(waiting_, &copy);
}

bool CopyStream::drain() noexcept {
  const std::lock_guard lock(mutex_);
  return stream_ == nullptr || hippogriff::drain(*stream_);
}

void CopyStream::forget_failures() noexcept {
  const std::lock_guard lock(mutex_);
  for (int failures = 0; stream_ != nullptr && failures < failures_max; ++failures) {
    try {
      static_cast<void>(stream_->idle());
      return;
    } catch (...) {
      continue;
    }
  }
}

}  // namespace hippogriff
