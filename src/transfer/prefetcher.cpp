// A list of extents, and a thread that asks for them in order, a step at a time.
#include "transfer/prefetcher.hpp"

#include "base/quiet_thread.hpp"
#include "transfer/small_path.hpp"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <utility>

namespace hippogriff {

namespace {

// The kernel reads ahead no more than this at a time where drives have their usual settings; of
// more it would leave the rest out.
constexpr std::uint64_t asked_bytes = std::uint64_t{128} << 10;
// So much is looked at before it is asked for: what is there takes a microsecond then, not a
// hundred.
constexpr std::uint64_t step_bytes = std::uint64_t{4} << 20;

bool is_there(File& file, Range range) {
  try {
    const auto residency = file.residency(range);
    return residency && residency->resident_bytes >= residency->total_bytes;
  } catch (...) {
    return true;  // Whoever sends it is told what is wrong with it.
  }
}

void ask_for(File& file, Range range) {
  if (is_there(file, range)) {
    return;
  }
  for (std::uint64_t at = range.offset; at < range.end(); at += asked_bytes) {
    file.begin_read_ahead({at, std::min(asked_bytes, range.end() - at)});
  }
}

}  // namespace

struct Prefetcher::State {
  struct Wish {
    FileIdentity identity;
    Range extent;
    Range left;
    std::shared_ptr<File> file;  // null once all of it has been asked for
  };

  explicit State(std::uint64_t most) : bytes_max(most) {}

  const std::uint64_t bytes_max;
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Wish> wishes;  // in order; they count until they are sent
  std::uint64_t bytes = 0;
  bool ends = false;
  bool runs = false;
};

Prefetcher::Prefetcher(std::uint64_t bytes_max) : state_(std::make_shared<State>(bytes_max)) {}

Prefetcher::~Prefetcher() {
  if (thread_.joinable()) {
    stop(std::chrono::steady_clock::now());
    thread_.detach();
  }
}

std::uint64_t Prefetcher::begin(const std::shared_ptr<File>& file, Range extent) {
  State& state = *state_;
  if (file->facts().in_memory || extent.empty()) {
    return 0;
  }
  std::unique_lock lock(state.mutex);
  extent.size = state.ends ? 0 : std::min(extent.size, state.bytes_max - state.bytes);
  if (extent.size <= SmallPath::size_bytes_max) {
    lock.unlock();
    ask_for(*file, extent);
    return extent.size;
  }
  if (!thread_.joinable()) {
    thread_ = quiet_thread("hippo-prefetch", [shared = state_] { run(*shared); });
    state.runs = true;
  }
  state.wishes.push_back({file->identity(), extent, extent, file});
  state.bytes += extent.size;
  state.changed.notify_all();
  return extent.size;
}

void Prefetcher::sent(const File& file, Range extent) noexcept {
  const std::scoped_lock lock(state_->mutex);
  if (state_->wishes.empty()) {
    return;
  }
  const FileIdentity identity = file.identity();
  state_->wishes.remove_if([&](const State::Wish& wish) {
    const bool same = wish.identity.device_number == identity.device_number &&
                      wish.identity.inode == identity.inode && wish.extent.overlaps(extent);
    state_->bytes -= same ? wish.extent.size : 0;
    return same;
  });
}

void Prefetcher::run(State& state) {
  std::unique_lock lock(state.mutex);
  while (!state.ends) {
    const auto wish = std::ranges::find_if(
        state.wishes, [](const State::Wish& each) { return each.file != nullptr; });
    if (wish == state.wishes.end()) {
      state.changed.wait(lock);
      continue;
    }
    std::shared_ptr<File> file = wish->file;
    const Range step{wish->left.offset, std::min(step_bytes, wish->left.size)};
    wish->left = {step.end(), wish->left.size - step.size};
    if (wish->left.empty()) {
      wish->file = nullptr;
    }
    lock.unlock();
    ask_for(*file, step);
    file = nullptr;
    lock.lock();
  }
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
