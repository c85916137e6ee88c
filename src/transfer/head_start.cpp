// What an engine makes beside a GPU's first transfers, which would otherwise make it one after the
// other.
#include "transfer/cost_model.hpp"
#include "transfer/engine.hpp"
#include "transfer/exit_hold.hpp"

#include <algorithm>

namespace hippogriff {

namespace {

// Enough for short transfers, both ways. Each segment took 0.8 ms beside an H200.
constexpr std::size_t pinned_bytes_first = std::size_t{8} << 20;
// After so many short sends more are expected.
constexpr std::uint32_t short_sends_few = 4;

}  // namespace

void Engine::begin_head_start(std::function<void()> also) {
  const std::lock_guard lock(mutex_);
  try {
    add_thread_locked([this, also = std::move(also)] { make_head_start(also); });
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): transfers make it
  }
}

void Engine::make_head_start(const std::function<void()>& also) {
  const auto goes_on = [this] { return !stopping_; };
  try {
    device_->make_current();
    const ExitHold hold;
    pinbuffer_.prepare(pinned_bytes_first, goes_on);
    static_cast<void>(storage_->queue_kind());
    if (goes_on()) {
      spare_stream_.make(*device_);
      also();
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): whoever needs it tries again
  }
}

// One segment after each short send, as long as it has fewer than it could use.
void Engine::prepare_for_more(const Transfer& transfer) noexcept {
  if (!is_short(transfer) || transfer.tally(Lane::buffered).bytes == 0 ||
      transfer.request().direction != Direction::send || ++short_sends_ <= short_sends_few) {
    return;
  }
  try {
    const std::size_t bytes = pinbuffer_.allocated_bytes() + 1;
    pinbuffer_.prepare(std::min(bytes, EngineShape::pinned_bytes_enough),
                       [this] { return !stopping_; });
  } catch (...) {  // NOLINT(bugprone-empty-catch): whoever needs it tries again
  }
}

}  // namespace hippogriff
