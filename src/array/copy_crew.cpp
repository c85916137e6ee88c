// A place for each job that waits. Who finds none looks out for some for a moment, then sleeps.
#include "array/copy_crew.hpp"

#include "base/quiet_thread.hpp"

#include <algorithm>
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
    stop_.store(true);
  }
  given_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

bool CopyCrew::try_give(CopyJob& job) {
  if (!has_threads()) {
    return false;
  }
  for (std::atomic<CopyJob*>& place : places_) {
    CopyJob* none = nullptr;
    if (place.load(std::memory_order_relaxed) != nullptr ||
        !place.compare_exchange_strong(none, &job)) {
      continue;
    }
    // Who sleeps has to be woken where jobs are more than those who look out. They stop looking
    // before they take one, so jobs are counted first.
    const std::size_t jobs = waiting();
    if (sleeping_.load() != 0 && looking_.load() < jobs) {
      {
        const std::scoped_lock lock(mutex_);
      }
      given_.notify_one();
    }
    return true;
  }
  return false;
}

// Starts one more thread where there may be one and all are busy. False: there is none at all.
bool CopyCrew::has_threads() {
  if (started_.load() == options_.threads || looking_.load() + sleeping_.load() > waiting()) {
    return true;
  }
  const std::scoped_lock lock(mutex_);
  const std::size_t number = threads_.size();
  try {
    if (number < options_.threads) {
      threads_.push_back(quiet_thread("hippo-copy", [this, number] { serve(number); }));
      started_.store(number + 1);
    }
  } catch (const std::system_error&) {
    return number != 0;
  }
  return true;
}

std::size_t CopyCrew::waiting() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(places_, [](const auto& place) { return place.load() != nullptr; }));
}

// Each time another place is looked into first, so that no job is passed over for long.
CopyJob* CopyCrew::take(std::size_t first) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    std::atomic<CopyJob*>& place = places_[(first + i) % places_.size()];
    if (place.load(std::memory_order_relaxed) == nullptr) {
      continue;
    }
    if (CopyJob* const job = place.exchange(nullptr)) {
      return job;
    }
  }
  return nullptr;
}

void CopyCrew::serve(std::size_t first) {
  while (!stop_.load(std::memory_order_relaxed)) {
    CopyJob* job = take(first++);
    if (job == nullptr && !look_out()) {
      sleep();
    }
    while (job != nullptr) {
      CopyJob& its = *std::exchange(job, job->with);  // which its giver may use again
      carry_out(its);
      its.finished->add(its);
    }
  }
}

// False when there was nothing for a while.
bool CopyCrew::look_out() {
  looking_.fetch_add(1);
  bool some = false;
  for (int look = 0; look < looks_awake && !some; ++look) {
    std::this_thread::yield();
    some = waiting() != 0;
  }
  looking_.fetch_sub(1);
  return some;
}

// Until there may be a job, or the end.
void CopyCrew::sleep() {
  std::unique_lock lock(mutex_);
  sleeping_.fetch_add(1);
  given_.wait(lock, [&] { return stop_.load() || waiting() != 0; });
  sleeping_.fetch_sub(1);
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
