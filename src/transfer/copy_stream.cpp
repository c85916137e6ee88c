// A stream, the lock around it, and the copies that wait for their turn.
#include "transfer/copy_stream.hpp"

#include <algorithm>

namespace hippogriff {

namespace {

// So much is kept queued: 380 us of a link of 55 GB/s, in which somebody comes by and queues what
// has gathered meanwhile. Of small copies not so many, because each batch costs calls of the
// driver.
constexpr std::size_t queued_bytes_enough = std::size_t{20} << 20;
constexpr std::size_t queued_batches_enough = 8;
// So that slots come back in time.
constexpr std::size_t batch_bytes_max = std::size_t{16} << 20;

std::size_t bytes_of(std::span<const CopyPart> parts) {
  std::size_t bytes = 0;
  for (const CopyPart& part : parts) {
    bytes += part.size_bytes;
  }
  return bytes;
}

}  // namespace

StreamCopy::~StreamCopy() {
  if (state_.load(std::memory_order_acquire) == State::waiting) {
    stream_.withdraw(*this);
  }
}

bool StreamCopy::is_under_way() const {
  const State state = state_.load(std::memory_order_acquire);
  return state == State::waiting ||
         (state == State::queued && !batch_->ended.load(std::memory_order_acquire));
}

bool StreamCopy::completed() {
  if (is_under_way()) {
    stream_.advance();
  }
  if (is_under_way()) {
    return false;
  }
  if (state_.load(std::memory_order_acquire) == State::failed) {
    std::rethrow_exception(failure_);
  }
  if (batch_ != nullptr && batch_->failure != nullptr) {
    std::rethrow_exception(batch_->failure);
  }
  return true;
}

void SpareStream::make(Device& device) {
  auto stream = device.create_stream();
  const std::lock_guard lock(mutex_);
  stream_ = std::move(stream);
}

std::unique_ptr<Stream> SpareStream::take() {
  const std::lock_guard lock(mutex_);
  return std::move(stream_);
}

Stream& CopyStream::made() {
  if (stream_ == nullptr && spare_ != nullptr) {
    stream_ = spare_->take();
  }
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
  advance();
}

void CopyStream::copy_to_host(std::byte* to,
                              DeviceAddress from,
                              std::size_t size_bytes,
                              Event& copied) {
  const std::lock_guard lock(mutex_);
  made().copy_to_host(to, from, size_bytes);
  stream_->record(copied);
}

std::unique_ptr<StreamCopy> CopyStream::create_copy() {
  return std::make_unique<StreamCopy>(*this);
}

void CopyStream::start_to_device(StreamCopy& copy, std::vector<CopyPart> parts) {
  copy.parts_ = std::move(parts);
  {
    const std::lock_guard lock(waiting_mutex_);
    waiting_.push_back(&copy);
    copy.state_.store(StreamCopy::State::waiting, std::memory_order_release);
  }
  advance();
}

void CopyStream::start_to_host(StreamCopy& copy,
                               std::byte* to,
                               DeviceAddress from,
                               std::size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  try {
    made().copy_to_host(to, from, size_bytes);
    copy.batch_ = end_batch(size_bytes);
    copy.state_.store(StreamCopy::State::queued, std::memory_order_release);
  } catch (...) {
    copy.failure_ = std::current_exception();
    copy.state_.store(StreamCopy::State::failed, std::memory_order_release);
    throw;
  }
}

// Who has the lock does it for all, and looks again after giving it back: who found it taken
// meanwhile has gone on.
void CopyStream::advance() {
  bool queued = true;
  while (queued) {
    {
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock.owns_lock()) {
        return;
      }
      settle_ended();
      queued = queue_next_batch();
    }
    queued = queued && any_waits();
  }
}

void CopyStream::settle_ended() noexcept {
  while (!under_way_.empty()) {
    CopyBatch& batch = *under_way_.front();
    try {
      if (!batch.event->completed()) {
        return;
      }
      events_.push_back(std::move(batch.event));
    } catch (...) {
      batch.failure = std::current_exception();
    }
    batch.ended.store(true, std::memory_order_release);
    under_way_.pop_front();
  }
}

bool CopyStream::enough_queued() const {
  std::size_t bytes = 0;
  for (const auto& batch : under_way_) {
    bytes += batch->bytes;
  }
  return bytes >= queued_bytes_enough || under_way_.size() >= queued_batches_enough;
}

bool CopyStream::queue_next_batch() {
  made();
  if (enough_queued()) {
    return false;
  }
  const std::vector<StreamCopy*> copies = take_waiting();
  if (!copies.empty()) {
    late_ += under_way_.empty() ? 1 : 0;
    ++batches_;
    queue_all(copies);
  }
  return !copies.empty();
}

std::vector<StreamCopy*> CopyStream::take_waiting() {
  const std::lock_guard lock(waiting_mutex_);
  std::size_t count = 0;
  std::size_t bytes = 0;
  while (count < waiting_.size() && bytes < batch_bytes_max) {
    bytes += bytes_of(waiting_[count++]->parts_);
  }
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<StreamCopy*> copies(waiting_.begin(), end);  // may throw: all still wait then
  waiting_.erase(waiting_.begin(), end);
  return copies;
}

// What fails as a whole is tried one by one, so that nobody fails by another's address. Every copy
// is queued or failed afterwards.
void CopyStream::queue_all(std::span<StreamCopy* const> copies) noexcept {
  const bool together = copies.size() > 1 && queue_parts(copies) == nullptr;
  std::size_t bytes = 0;
  for (StreamCopy* copy : copies) {
    copy->failure_ = together ? nullptr : queue_parts({&copy, 1});
    bytes += copy->failure_ == nullptr ? bytes_of(copy->parts_) : 0;
  }
  std::shared_ptr<CopyBatch> batch;
  std::exception_ptr without_end;
  try {
    batch = end_batch(bytes);
  } catch (...) {
    without_end = std::current_exception();
  }
  for (StreamCopy* copy : copies) {
    if (copy->failure_ == nullptr) {
      copy->failure_ = without_end;
    }
    const bool failed = copy->failure_ != nullptr;
    copy->batch_ = failed ? nullptr : batch;
    copy->state_.store(failed ? StreamCopy::State::failed : StreamCopy::State::queued,
                       std::memory_order_release);
  }
}

// Why they could not be queued; nullptr when they are.
std::exception_ptr CopyStream::queue_parts(std::span<StreamCopy* const> copies) noexcept {
  try {
    parts_.clear();
    for (const StreamCopy* copy : copies) {
      parts_.insert(parts_.end(), copy->parts_.begin(), copy->parts_.end());
    }
    stream_->copy_all_to_device(parts_);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

std::shared_ptr<CopyBatch> CopyStream::end_batch(std::size_t bytes) {
  auto batch = std::make_shared<CopyBatch>();
  batch->bytes = bytes;
  if (events_.empty()) {
    events_.push_back(device_.create_event());
  }
  stream_->record(*events_.back());
  under_way_.push_back(batch);
  batch->event = std::move(events_.back());
  events_.pop_back();
  return batch;
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
