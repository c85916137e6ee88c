// A list of extents, and a thread that asks for them in order, a step at a time.
#include "transfer/prefetcher.hpp"

#include "base/quiet_thread.hpp"
#include "transfer/outlook.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <list>
#include <mutex>
#include <system_error>
#include <utility>

namespace hippogriff {

namespace {

using Time = std::chrono::steady_clock::time_point;

// So much is looked at before it is asked for: what is there takes a microsecond then, not a
// hundred.
constexpr std::uint64_t step_bytes = std::uint64_t{2} << 20;
// As many are on their way. A send meets them in the page cache without their bytes, and reads them
// by the drive once more.
constexpr std::size_t steps_in_flight = 8;
// A step that takes longer is waited for no more, nor are others: their file system may not tell.
constexpr std::chrono::seconds landing_patience{2};
constexpr std::chrono::microseconds landing_poll{300};
constexpr std::chrono::milliseconds need_poll{5};
// Each keeps its file open, twice where there is direct I/O.
constexpr std::ptrdiff_t waiting_max = 32;

// What of `left` is still to be asked for where `sent` is not: what lies in its middle is found
// there when it is looked at.
Range without(Range left, Range sent) {
  if (sent.offset <= left.offset) {
    const std::uint64_t begin = std::clamp(sent.end(), left.offset, left.end());
    return {begin, left.end() - begin};
  }
  return {left.offset,
          sent.end() >= left.end() ? std::min(left.end(), sent.offset) - left.offset : left.size};
}

bool is_there(File& file, Range range) {
  try {
    return is_cached(file, range);
  } catch (...) {
    return true;  // Whoever sends it is told what is wrong with it.
  }
}

bool has_landed(File& file, std::uint64_t offset) {
  try {
    std::byte byte{};
    return file.read_cached({&byte, 1}, offset).has_value();
  } catch (...) {
    return true;
  }
}

bool is_same(const FileIdentity& one, const FileIdentity& other) {
  return one.device_number == other.device_number && one.inode == other.inode;
}

}  // namespace

struct Prefetcher::State {
  struct Wish {
    FileIdentity identity;
    RangeSet unsent;
    Range left;
    std::shared_ptr<File> file;  // null once all of it has been asked for
    Time asked;                  // when it, or the last part of it was asked for
  };

  struct Step {
    std::shared_ptr<File> file;
    std::uint64_t last_byte;
    Time asked;
  };

  State(std::uint64_t most, DriveIsNeeded needed, std::chrono::milliseconds time)
      : bytes_max(most), drive_is_needed(std::move(needed)), counted_time(time) {}

  std::list<Wish>::iterator forget(std::list<Wish>::iterator wish) {
    bytes -= wish->unsent.total_bytes();
    return wishes.erase(wish);
  }

  static void finish(Wish& wish) {
    if (wish.left.empty()) {
      wish.file = nullptr;
    }
  }

  void forget_old() {
    const Time before = std::chrono::steady_clock::now() - counted_time;
    for (auto wish = wishes.begin(); wish != wishes.end();) {
      // What waits for its turn is as old as what had the last one.
      const Time asked = wish->file == nullptr ? wish->asked : std::max(wish->asked, last_asked);
      wish = asked < before ? forget(wish) : std::next(wish);
    }
  }

  void forget_sent(const FileIdentity& identity, Range extent) {
    for (auto wish = wishes.begin(); wish != wishes.end();) {
      if (is_same(wish->identity, identity)) {
        bytes -= wish->unsent.total_bytes();
        wish->unsent.erase(extent);
        bytes += wish->unsent.total_bytes();
        wish->left = without(wish->left, extent);
        finish(*wish);
      }
      wish = wish->unsent.empty() ? forget(wish) : std::next(wish);
    }
  }

  [[nodiscard]] std::ptrdiff_t waiting() const {
    return std::ranges::count_if(wishes, [](const Wish& each) { return each.file != nullptr; });
  }

  [[nodiscard]] bool may_ask_for(const Wish& wish) const {
    try {
      return wish.file != nullptr && !(drive_is_needed && drive_is_needed(*wish.file));
    } catch (...) {
      return false;  // No memory: it is asked again.
    }
  }

  // A step that there is no memory to follow is not waited for.
  void follow(Step step) {
    try {
      in_flight.push_back(std::move(step));
    } catch (...) {  // NOLINT(bugprone-empty-catch)
    }
  }

  // Until what was asked for before the last steps is there, or its end.
  void await_landings(std::unique_lock<std::mutex>& lock) {
    while (!ends && paces && in_flight.size() >= steps_in_flight) {
      const Step& oldest = in_flight.front();
      lock.unlock();
      const bool landed = has_landed(*oldest.file, oldest.last_byte);
      lock.lock();
      if (landed) {
        in_flight.pop_front();
      } else if (std::chrono::steady_clock::now() - oldest.asked > landing_patience) {
        paces = false;
      } else {
        changed.wait_for(lock, landing_poll);
      }
    }
  }

  const std::uint64_t bytes_max;
  const DriveIsNeeded drive_is_needed;
  const std::chrono::milliseconds counted_time;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::list<Wish> wishes;  // in order; they count until they are sent, or old
  std::uint64_t bytes = 0;
  Time last_asked;
  bool ends = false;
  bool runs = false;

  // The thread's own.
  std::deque<Step> in_flight;
  bool paces = true;
};

Prefetcher::Prefetcher(std::uint64_t bytes_max,
                       DriveIsNeeded drive_is_needed,
                       std::chrono::milliseconds counted_time)
    : state_(std::make_shared<State>(bytes_max, std::move(drive_is_needed), counted_time)) {}

Prefetcher::~Prefetcher() {
  if (thread_.joinable() && !stop(std::chrono::steady_clock::now())) {
    thread_.detach();
  }
}

std::uint64_t Prefetcher::begin(const std::shared_ptr<File>& file, Range extent) {
  State& state = *state_;
  if (state.bytes_max == 0 || extent.empty() || file->facts().in_memory) {
    return 0;
  }
  const FileIdentity identity = file->identity();
  const std::scoped_lock lock(state.mutex);
  state.forget_old();
  state.forget_sent(identity, extent);  // Who asks again is counted once.
  extent.size = std::min(extent.size, state.bytes_max - state.bytes);
  if (extent.empty() || state.ends || state.waiting() >= waiting_max) {
    return 0;
  }
  if (!thread_.joinable()) {
    try {
      thread_ = quiet_thread("hippo-prefetch", [shared = state_] { run(*shared); });
    } catch (const std::system_error&) {
      return 0;
    }
    state.runs = true;
  }
  State::Wish wish{.identity = identity,
                   .left = extent,
                   .file = file,
                   .asked = std::chrono::steady_clock::now()};
  wish.unsent.insert(extent);
  state.wishes.push_back(std::move(wish));
  state.bytes += extent.size;
  state.changed.notify_all();
  return extent.size;
}

void Prefetcher::sent(const File& file, Range extent) noexcept {
  const std::scoped_lock lock(state_->mutex);
  if (!state_->wishes.empty()) {
    state_->forget_sent(file.identity(), extent);
  }
}

bool Prefetcher::reads() const noexcept {
  const std::scoped_lock lock(state_->mutex);
  return state_->waiting() > 0;
}

void Prefetcher::run(State& state) {
  std::unique_lock lock(state.mutex);
  while (!state.ends) {
    state.await_landings(lock);
    if (state.ends) {
      break;
    }
    state.forget_old();
    const auto wish = std::ranges::find_if(
        state.wishes, [&state](const State::Wish& each) { return state.may_ask_for(each); });
    if (wish == state.wishes.end()) {
      if (state.waiting() > 0) {
        state.changed.wait_for(lock, need_poll);
        continue;
      }
      state.in_flight.clear();  // Their files are not kept open.
      state.changed.wait(lock);
      continue;
    }
    const std::shared_ptr<File> file = wish->file;
    const Range step{wish->left.offset, std::min(step_bytes, wish->left.size)};
    wish->left = {step.end(), wish->left.size - step.size};
    wish->asked = state.last_asked = std::chrono::steady_clock::now();
    State::finish(*wish);
    lock.unlock();
    const bool asks = !is_there(*file, step);
    if (asks) {
      file->begin_read_ahead(step);
    }
    lock.lock();
    if (asks && state.paces) {
      state.follow({file, step.end() - 1, std::chrono::steady_clock::now()});
    }
  }
  state.in_flight.clear();
  state.runs = false;
  state.changed.notify_all();
}

bool Prefetcher::stop(std::chrono::steady_clock::time_point deadline) noexcept {
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->wishes.clear();
  state_->bytes = 0;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_until(lock, deadline, [&] { return !state_->runs; });
  lock.unlock();
  if (ended && thread_.joinable()) {
    thread_.join();
  }
  return ended;
}

}  // namespace hippogriff
