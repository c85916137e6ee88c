// IoQueue over io_uring: waits are bounded by the kernel's own timeout.
#include "storage/uring_queue.hpp"

#include "storage/queue_request.hpp"

#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::uint64_t no_slot = UINT64_MAX;
// A request that the system sends back so often without an error of its own is given to the caller.
constexpr int attempts_max = 16;
// One that is cancelled may want a worker where there can be none (ulimit -u): the kernel looks for
// one for 30 ms each time, and the caller can do without.
constexpr int cancelled_attempts_max = 2;
constexpr int submit_attempts_max = 1000;
constexpr std::chrono::microseconds submit_pause{1000};
constexpr std::size_t batch_count = 64;

bool sent_back(int result) {
  return result == -EAGAIN || result == -EINTR || result == -ECANCELED;
}

int attempts_for(int result) {
  return result == -ECANCELED ? cancelled_attempts_max : attempts_max;
}

// Sets a ring up. Returns 0 or -errno. COOP_TASKRUN spares the interrupts that announce
// completions; kernels before 5.19 do not know it. SINGLE_ISSUER is left out because it ties the
// ring to one thread for good, where IoQueue promises only one at a time.
int initialize_ring(io_uring& ring, std::size_t depth) {
  const auto entries = static_cast<unsigned>(std::max<std::size_t>(depth, 8));
  io_uring_params parameters{};
  parameters.flags = IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
  int result = ::io_uring_queue_init_params(entries, &ring, &parameters);
  if (result == -EINVAL) {
    parameters = {};
    parameters.flags = IORING_SETUP_CLAMP;
    result = ::io_uring_queue_init_params(entries, &ring, &parameters);
  }
  if (result == 0 && (parameters.features & IORING_FEAT_EXT_ARG) == 0) {
    ::io_uring_queue_exit(&ring);
    return -EOPNOTSUPP;
  }
  return result;
}

struct RingCloser {
  void operator()(io_uring* ring) const noexcept {
    ::io_uring_queue_exit(ring);
    delete ring;
  }
};

using RingPointer = std::unique_ptr<io_uring, RingCloser>;

std::string explain(int errno_value) {
  if (errno_value == EOPNOTSUPP) {
    return "the kernel is older than 5.11";
  }
  if (errno_value == ENOMEM) {
    return locked_memory_refusal;  // rings counted against it before Linux 5.12
  }
  return ::strerrordesc_np(errno_value);
}

class UringQueue final : public IoQueue {
 public:
  UringQueue(RingPointer ring, std::size_t depth, const RingBuffers& buffers)
      : ring_(std::move(ring)), slots_(depth) {
    for (std::size_t i = depth; i > 0; --i) {
      free_slots_.push_back(i - 1);
    }
    prepared_.reserve(depth);
    if (buffers.registers) {
      buffers_.emplace(*ring_, buffers.refusal);
    }
  }

  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
  UringQueue(UringQueue&&) = delete;
  UringQueue& operator=(UringQueue&&) = delete;
  ~UringQueue() override;

  void submit(const IoRequest& request) override;
  void prepare(const IoRequest& request) override;
  void submit_prepared() override;
  std::size_t reap(std::span<IoCompletion> completions, std::chrono::nanoseconds timeout) override;

  // What is prepared counts, and completions that wait for a reap still do.
  [[nodiscard]] std::size_t in_flight() const override {
    return slots_.size() - free_slots_.size() + finished_.size();
  }

  [[nodiscard]] std::size_t registered_count() const { return buffers_ ? buffers_->count() : 0; }

 private:
  struct Slot {
    CheckedRequest request;
    int buffer_index = -1;
    int attempts = 0;
  };

  // Of a slot, in the ring, as long as the kernel has not taken it.
  struct Entry {
    std::size_t index;
    io_uring_sqe* sqe;
  };

  std::size_t take_slot(const IoRequest& request);
  io_uring_sqe* free_entry();
  int make_entry(std::size_t index);
  int enter();
  std::span<const Entry> not_taken() const;
  void refuse_prepared(int result);
  void collect();
  void harvest();
  void finish(std::size_t index, std::int64_t result);
  std::size_t take(std::span<IoCompletion> completions);
  int wait_for_one(std::chrono::nanoseconds timeout);
  void cancel_all() noexcept;

  RingPointer ring_;
  std::optional<RegisteredBuffers> buffers_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_slots_;
  std::vector<Entry> prepared_;  // since the kernel last took all of them
  std::deque<IoCompletion> finished_;
  std::vector<std::size_t> again_;  // slots to be started once more
  bool closing_ = false;
};

void fill_entry(io_uring_sqe& sqe, const CheckedRequest& request, int buffer_index) {
  const auto size = static_cast<unsigned>(request.size_bytes);
  const bool reads = request.kind == IoRequest::Kind::read;
  const auto pieces = static_cast<unsigned>(request.pieces.size());
  if (pieces != 0 && reads) {
    ::io_uring_prep_readv(&sqe, request.fd, request.pieces.data(), pieces, request.offset);
  } else if (pieces != 0) {
    ::io_uring_prep_writev(&sqe, request.fd, request.pieces.data(), pieces, request.offset);
  } else if (buffer_index >= 0 && reads) {
    ::io_uring_prep_read_fixed(
        &sqe, request.fd, request.memory, size, request.offset, buffer_index);
  } else if (buffer_index >= 0) {
    ::io_uring_prep_write_fixed(
        &sqe, request.fd, request.memory, size, request.offset, buffer_index);
  } else if (reads) {
    ::io_uring_prep_read(&sqe, request.fd, request.memory, size, request.offset);
  } else {
    ::io_uring_prep_write(&sqe, request.fd, request.memory, size, request.offset);
  }
}

// Hands what is prepared to the kernel. Returns 0 or -errno.
int UringQueue::enter() {
  for (int attempt = 0; attempt < submit_attempts_max; ++attempt) {
    const int result = ::io_uring_submit(ring_.get());
    if (result >= 0 && ::io_uring_sq_ready(ring_.get()) == 0) {
      prepared_.clear();
      return 0;
    }
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) {
      return result;
    }
    if (result == -EBUSY || result == -EAGAIN) {
      // The kernel wants its completions read, or is short of memory for a moment.
      collect();
      std::this_thread::sleep_for(submit_pause);
    }
  }
  return -EAGAIN;
}

// It takes them in their order.
std::span<const UringQueue::Entry> UringQueue::not_taken() const {
  const std::size_t ready = ::io_uring_sq_ready(ring_.get());
  return std::span(prepared_).last(std::min(ready, prepared_.size()));
}

// What the kernel has not taken it must not take with what comes later. None of it is told as
// something to be tried again: enter() has.
void UringQueue::refuse_prepared(int result) {
  result = sent_back(result) && !closing_ ? -EBUSY : result;
  for (const Entry& entry : not_taken()) {
    ::io_uring_prep_nop(entry.sqe);
    ::io_uring_sqe_set_data64(entry.sqe, no_slot);
    finish(entry.index, result);
  }
  prepared_.clear();
}

// The ring may be full of what was refused. nullptr while the kernel does not take even that.
io_uring_sqe* UringQueue::free_entry() {
  io_uring_sqe* sqe = ::io_uring_get_sqe(ring_.get());
  if (sqe == nullptr && ::io_uring_submit(ring_.get()) > 0) {
    sqe = ::io_uring_get_sqe(ring_.get());
  }
  return sqe;
}

// Returns 0 or -errno.
int UringQueue::make_entry(std::size_t index) {
  io_uring_sqe* sqe = free_entry();
  if (sqe == nullptr) {
    return -EBUSY;
  }
  Slot& slot = slots_[index];
  fill_entry(*sqe, slot.request, slot.buffer_index);
  // The second try goes to a worker that may sleep, where the first found the file not ready.
  sqe->flags |= slot.attempts > 0 ? IOSQE_ASYNC : 0U;
  ::io_uring_sqe_set_data64(sqe, index);
  ++slot.attempts;
  prepared_.push_back({index, sqe});
  return 0;
}

std::size_t UringQueue::take_slot(const IoRequest& request) {
  CheckedRequest checked = check_request(request, in_flight(), slots_.size());
  const std::size_t index = free_slots_.back();
  const int buffer_index = buffers_ && checked.pieces.empty()
                               ? buffers_->use(request.buffer, {checked.memory, checked.size_bytes})
                               : -1;
  slots_[index] = {std::move(checked), buffer_index, 0};
  free_slots_.pop_back();
  return index;
}

void UringQueue::prepare(const IoRequest& request) {
  const std::size_t index = take_slot(request);
  const int result = make_entry(index);
  if (result != 0) {
    free_slots_.push_back(index);
    throw_io("submit to io_uring", request.file->facts().path, request.offset, -result);
  }
}

void UringQueue::submit_prepared() {
  if (prepared_.empty()) {
    return;
  }
  const int result = enter();
  if (result != 0) {
    refuse_prepared(result);
  }
}

void UringQueue::submit(const IoRequest& request) {
  prepare(request);
  const int result = enter();
  if (result == 0) {
    return;
  }
  // The others complete with the error, this one's caller has it.
  refuse_prepared(result);
  finished_.pop_back();
  throw_io("submit to io_uring", request.file->facts().path, request.offset, -result);
}

void UringQueue::finish(std::size_t index, std::int64_t result) {
  finished_.push_back({slots_[index].request.tag, result});
  free_slots_.push_back(index);
}

// Moves completions from the ring to finished_, and what was sent back to again_.
void UringQueue::collect() {
  std::array<io_uring_cqe*, batch_count> batch{};
  unsigned count = 0;
  while ((count = ::io_uring_peek_batch_cqe(ring_.get(), batch.data(), batch.size())) > 0) {
    for (unsigned i = 0; i < count; ++i) {
      const std::uint64_t index = ::io_uring_cqe_get_data64(batch[i]);
      const int result = batch[i]->res;
      if (index == no_slot) {
        continue;
      }
      if (sent_back(result) && !closing_ && slots_[index].attempts < attempts_for(result)) {
        again_.push_back(index);
      } else {
        finish(index, result);
      }
    }
    ::io_uring_cq_advance(ring_.get(), count);
  }
}

void UringQueue::harvest() {
  collect();
  while (!again_.empty()) {
    const std::size_t index = again_.back();
    again_.pop_back();
    const int result = make_entry(index);
    if (result != 0) {
      finish(index, result);
    }
  }
}

std::size_t UringQueue::take(std::span<IoCompletion> completions) {
  const std::size_t count = std::min(completions.size(), finished_.size());
  const auto end = finished_.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(finished_.begin(), end, completions.begin());
  finished_.erase(finished_.begin(), end);
  return count;
}

// Sleeps in the kernel until there is a completion. Returns 0 or -errno.
int UringQueue::wait_for_one(std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  __kernel_timespec time{};
  time.tv_sec = seconds.count();
  time.tv_nsec = (timeout - seconds).count();
  io_uring_cqe* cqe = nullptr;
  return ::io_uring_wait_cqe_timeout(ring_.get(), &cqe, &time);
}

std::size_t UringQueue::reap(std::span<IoCompletion> completions,
                             std::chrono::nanoseconds timeout) {
  if (completions.empty()) {
    return 0;
  }
  const auto deadline = deadline_after(timeout);
  for (;;) {
    submit_prepared();
    if (finished_.size() < completions.size()) {
      do {
        harvest();
        submit_prepared();
      } while (!again_.empty());
    }
    if (!finished_.empty() || in_flight() == 0) {
      return take(completions);
    }
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) {
      return 0;
    }
    const int result = wait_for_one(left);
    if (result != 0 && result != -ETIME && result != -EINTR && result != -EAGAIN) {
      throw_io("wait for io_uring", "io_uring", no_offset, -result);
    }
  }
}

// Asks the kernel to drop what has not begun; drives finish what they have.
void UringQueue::cancel_all() noexcept {
  std::vector<bool> busy(slots_.size(), true);
  for (const std::size_t index : free_slots_) {
    busy[index] = false;
  }
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    io_uring_sqe* sqe = busy[index] ? free_entry() : nullptr;
    if (sqe != nullptr) {
      ::io_uring_prep_cancel64(sqe, index, 0);
      ::io_uring_sqe_set_data64(sqe, no_slot);
      static_cast<void>(::io_uring_submit(ring_.get()));
    }
  }
}

UringQueue::~UringQueue() {
  closing_ = true;
  refuse_prepared(-ECANCELED);
  for (const std::size_t index : again_) {
    finish(index, -ECANCELED);
  }
  collect();
  if (free_slots_.size() < slots_.size()) {
    cancel_all();
  }
  while (free_slots_.size() < slots_.size()) {
    const int result = wait_for_one(queue_close_patience);
    collect();
    if (result == -ETIME) {
      complain_of_drive(slots_.size() - free_slots_.size());
    } else if (result != 0 && result != -EINTR) {
      std::this_thread::sleep_for(submit_pause);  // the ring cannot be waited for, only looked at
    }
  }
}

}  // namespace

std::unique_ptr<IoQueue> make_uring_queue(std::size_t depth, const RingBuffers& buffers) {
  auto ring = std::make_unique<io_uring>();
  const int result = initialize_ring(*ring, depth);
  if (result != 0) {
    throw Error({.status = result == -ENOMEM ? Status::io_error : Status::unsupported,
                 .operation = "set up io_uring",
                 .object = "io_uring",
                 .errno_value = -result,
                 .detail = explain(-result)});
  }
  return std::make_unique<UringQueue>(RingPointer(ring.release()), depth, buffers);
}

std::size_t registered_buffer_count(const IoQueue& queue) {
  const auto* uring = dynamic_cast<const UringQueue*>(&queue);
  return uring == nullptr ? 0 : uring->registered_count();
}

std::string why_no_io_uring() {
  io_uring ring{};
  const int result = initialize_ring(ring, 1);
  if (result != 0) {
    return explain(-result);
  }
  ::io_uring_queue_exit(&ring);
  return {};
}

}  // namespace hippogriff
