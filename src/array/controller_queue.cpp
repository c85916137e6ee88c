// Fetching in order, posting in any.
#include "array/controller_queue.hpp"

namespace hippogriff::ondemand {

// What a GPU has written is in no core's cache: the next commands are asked for ahead.
Command ControllerQueue::fetch() {
  constexpr std::uint64_t ahead = 4;
  const std::uint32_t slot = pair_.slot_of(fetched_);
  __builtin_prefetch(&pair_.commands()[pair_.slot_of(fetched_ + ahead)]);
  Command command = pair_.commands()[slot];
  command.id = static_cast<std::uint16_t>(slot);
  ++fetched_;
  return command;
}

void ControllerQueue::post(std::uint16_t slot,
                           const Outcome& outcome,
                           const FailureRecord& record) {
  if (outcome.status != NvmeStatus::success) {
    pair_.failures()[slot] = record;
  }
  Completion& entry = pair_.completions()[posted_ & (pair_.completion_depth() - 1)];
  entry.result = outcome.result;
  CompletionWord word;
  word.submission_head = static_cast<std::uint16_t>(pair_.slot_of(fetched_));
  word.command = slot;
  word.phase = pair_.phase_of(posted_);
  word.status = static_cast<std::uint16_t>(outcome.status);
  system_ref<std::uint64_t>(entry.last).store(pack(word), release);
  ++posted_;
}

}  // namespace hippogriff::ondemand
