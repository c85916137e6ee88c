// One list of jobs for all; who finds none looks out for some for a moment, then sleeps.
#include "array/copy_crew.hpp"

#include "array/quiet_thread.hpp"

#include <system_error>
#include <utility>

namespace hippogriff::ondemand {

namespace {

// Each a call of sched_yield: together some 0.1 ms, longer than a controller's turn.
constexpr int looks_awake = 256;

}  // namespace

CopyCrew::~CopyCrew() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  given_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

bool CopyCrew::try_give(CopyJob& job) {
  {
    const std::scoped_lock lock(mutex_);
    const bool all_busy = idle_ <= jobs_.size();
    if (jobs_.size() >= options_.threads || (all_busy && !has_another_locked())) {
      return false;
    }
    jobs_.push_back(&job);
    waiting_.store(jobs_.size(), std::memory_order_relaxed);
  }
  given_.notify_one();
  return true;
}

// Starts one more thread where there may be one. False: there is none at all.
bool CopyCrew::has_another_locked() {
  try {
    if (threads_.size() < options_.threads) {
      threads_.push_back(quiet_thread("hippo-copy", [this] { serve(); }));
    }
  } catch (const std::system_error&) {
    return !threads_.empty();
  }
  return true;
}

void CopyCrew::serve() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (jobs_.empty()) {
      rest(lock);
      continue;
    }
    CopyJob* job = jobs_.front();
    jobs_.pop_front();
    waiting_.store(jobs_.size(), std::memory_order_relaxed);
    lock.unlock();
    while (job != nullptr) {
      CopyJob& its = *std::exchange(job, job->with);  // which its giver may use again
      carry_out(its);
      its.finished->add(its);
    }
    lock.lock();
  }
}

// Until there may be a job, or the end.
void CopyCrew::rest(std::unique_lock<std::mutex>& lock) {
  ++idle_;
  lock.unlock();
  const bool some = look_out();
  lock.lock();
  if (!some) {
    given_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
  }
  --idle_;
}

bool CopyCrew::look_out() const {
  for (int look = 0; look < looks_awake; ++look) {
    if (waiting_.load(std::memory_order_relaxed) != 0) {
      return true;
    }
    std::this_thread::yield();
  }
  return false;
}

void CopyCrew::carry_out(CopyJob& job) {
  job.failure = {};
  try {
    job.count = job.file->read_cached_pieces(job.pieces, job.offset, job.expected);
  } catch (...) {
    job.failure = current_failure();
  }
}

}  // namespace hippogriff::ondemand
