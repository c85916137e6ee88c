// The controller's side of a queue pair: fetches commands, posts completions. One thread's.
#pragma once

#include <hippogriff/array/queue.hpp>

#include <cstdint>

namespace hippogriff::ondemand {

class ControllerQueue {
 public:
  // `base` as in initialize_shared.
  explicit ControllerQueue(const QueuePair& pair, std::uint64_t base = 0)
      : pair_(pair), fetched_(base), posted_(base) {}

  // How many commands the doorbell tells of that were not fetched.
  [[nodiscard]] std::uint32_t waiting() const {
    return (tail(acquire) - pair_.slot_of(fetched_)) & (pair_.depth - 1);
  }

  // The next of them. What is in it is the submitter's word: check it. Its identifier is the slot's
  // number, whatever the command says.
  Command fetch();

  // Whether there are any, after a thread has said that it sleeps.
  [[nodiscard]] bool has_commands() const {
    return (tail(seq_cst) & (pair_.depth - 1)) != pair_.slot_of(fetched_);
  }

  // Tells the slot's owner. `record` is written where status is not success.
  void post(std::uint16_t slot, const Outcome& outcome, const FailureRecord& record = {});

  // Hands what was posted to its owners, who may sleep; where owners are this machine's threads.
  void tell(const Patience& patience) const {
    if (wakes() && has_untold()) {
      pair_.drain(Alone{}, patience);
    }
  }

  // Whether something posted has not reached its owner.
  [[nodiscard]] bool has_untold() const {
    return wakes() &&
           shared_ref<std::uint64_t>(pair_.state().completion_head).load(relaxed) != posted_;
  }

  // Whether those who submit wake the controller.
  [[nodiscard]] bool wakes() const { return pair_.wake() != nullptr; }

  // Commands fetched and not posted.
  [[nodiscard]] std::uint64_t under_way() const { return fetched_ - posted_; }

 private:
  [[nodiscard]] std::uint32_t tail(memory_order order) const {
    return system_ref<std::uint32_t>(pair_.bells().doorbells.submission_tail).load(order);
  }

  QueuePair pair_;
  std::uint64_t fetched_;
  std::uint64_t posted_;
};

}  // namespace hippogriff::ondemand
