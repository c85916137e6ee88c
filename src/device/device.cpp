// Waiting by asking again: works the same for every backend and never blocks in a driver.
#include "device/device.hpp"

#include <algorithm>
#include <thread>

namespace hippogriff {

namespace {

using Clock = std::chrono::steady_clock;

// Most small copies end within the spin; sleeping for them would double their time.
constexpr std::chrono::microseconds spin_time{2};  // from then on others may run, too
constexpr std::chrono::nanoseconds sleep_min = std::chrono::microseconds(10);

template <typename Done>
bool poll_until(Done done, std::chrono::nanoseconds timeout, const Polling& polling) {
  if (done()) {
    return true;
  }
  const auto start = Clock::now();
  std::chrono::nanoseconds sleep = sleep_min;
  while (true) {
    // The time is read before asking, so that the last question comes after the timeout.
    const std::chrono::nanoseconds elapsed = Clock::now() - start;
    if (done()) {
      return true;
    }
    if (elapsed >= timeout) {
      return false;
    }
    if (elapsed >= polling.spin) {
      std::this_thread::sleep_for(std::min(sleep, timeout - elapsed));
      sleep = std::min(sleep * 3 / 2, polling.longest_sleep);
    } else if (elapsed >= spin_time) {
      std::this_thread::yield();
    }
  }
}

}  // namespace

void Stream::copy_all_to_device(std::span<const CopyPart> parts) {
  for (const CopyPart& part : parts) {
    copy_to_device(part.to, part.from, part.size_bytes);
  }
}

bool wait_for(Event& event, std::chrono::nanoseconds timeout, const Polling& polling) {
  return poll_until([&event] { return event.completed(); }, timeout, polling);
}

bool wait_for(Stream& stream, std::chrono::nanoseconds timeout) {
  return poll_until([&stream] { return stream.idle(); }, timeout, Polling{});
}

}  // namespace hippogriff
