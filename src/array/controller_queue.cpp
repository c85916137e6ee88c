// Fetching in order, posting in any.
#include "array/controller_queue.hpp"

namespace hippogriff::ondemand {

std::optional<Command> ControllerQueue::fetch() {
  if (!has_commands(acquire)) {
    return std::nullopt;
  }
  const std::uint32_t slot = pair_.slot_of(fetched_);
  Command command = pair_.commands[slot];
  command.id = static_cast<std::uint16_t>(slot);
  ++fetched_;
  return command;
}

void ControllerQueue::post(std::uint16_t slot,
                           const Outcome& outcome,
                           const FailureRecord& record) {
  if (outcome.status != NvmeStatus::success) {
    pair_.failures[slot] = record;
  }
  Completion& entry = pair_.completions[posted_ & (pair_.completion_depth() - 1)];
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
