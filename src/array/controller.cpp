// Spreads the queues of arrays over the threads.
#include "array/controller.hpp"

#include "array/controller_thread.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <utility>

namespace hippogriff::ondemand {

Controller::Controller(std::shared_ptr<Storage> storage, std::size_t threads, CopyCrewOptions crew)
    : storage_(std::move(storage)), drives_(std::max<std::size_t>(threads, 1)), crew_(crew) {
  for (std::size_t i = 0; i < std::max<std::size_t>(threads, 1); ++i) {
    threads_.push_back(std::make_unique<ControllerThread>(storage_, drives_, registrar_, crew_));
  }
}

Controller::~Controller() = default;

WakeWord* Controller::wake_word(std::size_t index) {
  return &threads_[index % threads_.size()]->wake_word();
}

void Controller::attach(const std::shared_ptr<ServedArray>& array) {
  if (const auto& windows = array->backing().windows) {
    registrar_.watch(windows);
  }
  const std::size_t queues = array->options().queues.size();
  for (std::size_t i = 0; i < std::min(queues, threads_.size()); ++i) {
    std::vector<std::size_t> indices;
    for (std::size_t queue = i; queue < queues; queue += threads_.size()) {
      indices.push_back(queue);
    }
    threads_[i]->attach(array, indices);
  }
}

bool Controller::works() const {
  return std::ranges::all_of(threads_, [](const auto& thread) { return thread->works(); });
}

bool Controller::stages_for(const Device* device) const {
  const std::scoped_lock lock(mutex_);
  return staged_.contains(device);
}

void Controller::begin_staging(const Device* device) {
  const std::scoped_lock lock(mutex_);
  ++staged_[device];
}

void Controller::end_staging(const Device* device) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto entry = staged_.find(device);
  HIPPO_ASSERT(entry != staged_.end());
  if (--entry->second == 0) {
    staged_.erase(entry);
  }
}

bool Controller::detach(const std::shared_ptr<ServedArray>& array,
                        std::chrono::milliseconds patience) {
  array->end(Ending::stopped);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  bool gone = true;
  for (const auto& thread : threads_) {
    gone = thread->detach(array, deadline) && gone;
  }
  return gone;
}

}  // namespace hippogriff::ondemand
