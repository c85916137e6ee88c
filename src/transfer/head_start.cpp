// What an engine makes beside a GPU's first transfers and between later ones, which would otherwise
// make it while they run.
#include "transfer/cost_model.hpp"
#include "transfer/engine.hpp"
#include "transfer/exit_hold.hpp"
#include "transfer/outlook.hpp"

#include <memory>
#include <utility>

namespace hippogriff {

namespace {

// Enough for short transfers, both ways. Each segment took 0.8 ms beside an H200.
constexpr std::size_t pinned_bytes_first = std::size_t{8} << 20;
// They keep a link busy until the rest are there. A first send of 7 MB took 3.9 ms with none, 2.7
// with 4 and 3.2 with 12, which hold up the pinning; one of 40 MB 5.3, 4.6 and 5.3 (an H200).
constexpr std::size_t workers_first = 4;
// After so many short sends more are expected.
constexpr std::uint32_t short_sends_few = 4;

}  // namespace

void Engine::begin_head_start(std::function<void()> also) noexcept {
  try {
    // Here, where the driver is loaded and the caller has not gone on.
    auto hold = std::make_shared<ExitHold>();
    const std::lock_guard lock(mutex_);
    add_thread_locked([this, also = std::move(also), hold] { make_head_start(also); });
  } catch (...) {  // NOLINT(bugprone-empty-catch): transfers make it
  }
}

// Before memory is pinned: to make a thread's stack the kernel waits for whoever pins. Beside that
// a first send had its 7 to 12 threads after 0.7 to 2.2 ms.
void Engine::make_workers() noexcept {
  try {
    for (std::size_t made = 0; made < workers_first; ++made) {
      auto ahead = std::make_shared<const ExitHold>();
      const std::lock_guard lock(mutex_);
      if (stopping_ || workers_ >= workers_first) {
        return;
      }
      spawn_locked(std::move(ahead));
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the tasks that come are told
  }
}

void Engine::make_head_start(const std::function<void()>& also) {
  const auto goes_on = [this] { return !stopping_; };
  make_workers();
  try {
    device_->make_current();
    pinbuffer_.prepare(pinned_bytes_first, goes_on);
    static_cast<void>(storage_->queue_kind());
    if (goes_on()) {
      spare_stream_.make(*device_);
      also();
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): whoever needs it tries again
  }
}

// One segment after each, until there is enough for all channels of any.
void Engine::prepare_for_more(const Transfer& transfer) noexcept {
  if (!is_short(transfer) || transfer.tally(Lane::buffered).bytes == 0 ||
      transfer.request().direction != Direction::send || ++short_sends_ <= short_sends_few) {
    return;
  }
  try {
    pinbuffer_.prepare_one_more(EngineShape::pinned_bytes_enough);
  } catch (...) {  // NOLINT(bugprone-empty-catch): whoever needs it tries again
  }
}

// What registering needs takes device memory and holds up the process's other calls of the driver
// while it is made. It pays where much is moved: 0.1 CPU seconds per GB. After a transfer, so that
// none of ours waits for it that would not have to. Sends to several destinations load models, once
// in a process that wants the memory for itself: they do not count.
void Engine::prepare_to_map(const Transfer& transfer) {
  const TransferRequest& request = transfer.request();
  const bool mappable = device_->info().can.registers_aside &&
                        request.direction == Direction::send && request.destinations.empty() &&
                        request.extent.size >= mix_bytes_min;
  const std::uint64_t bytes = transfer.tally(Lane::buffered).bytes;
  if (mappable && mappable_bytes_.fetch_add(bytes) + bytes >= options_.mapped_after_bytes) {
    static_cast<void>(device_->registers_aside(std::chrono::milliseconds(0)));
  }
}

}  // namespace hippogriff
