// A queue of direct reads in order, until it is told to end.
#include "transfer/first_read.hpp"

#include "base/page_size.hpp"
#include "base/quiet_thread.hpp"
#include "device/host_memory.hpp"
#include "transfer/direct_queue.hpp"
#include "transfer/outlook.hpp"
#include "transfer/read_ahead_file.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace hippogriff {

namespace {

constexpr std::uint32_t reads_max = 32;
constexpr std::chrono::milliseconds looks_while_reading{5};
constexpr std::chrono::milliseconds looks_while_waiting{2};
// What is under way when it ends comes within this, or is read again.
constexpr std::chrono::milliseconds first_read_patience{500};

}  // namespace

struct FirstRead::State {
  State(std::shared_ptr<Storage> the_storage,
        std::shared_ptr<File> the_file,
        Range the_extent,
        std::uint64_t alignment,
        ReadsAllowed allowed)
      : storage(std::move(the_storage)),
        file(std::move(the_file)),
        extent(the_extent),
        first(align_down(extent.offset, alignment)),
        end(align_up(extent.end(), alignment)),
        memory(std::max<std::uint64_t>(end - first, huge_page_bytes)),
        reads_allowed(std::move(allowed)),
        done((end - align_down(first, step_bytes) + step_bytes - 1) / step_bytes) {}

  // Ends at a multiple of its size in the file, but the last one.
  [[nodiscard]] Range step(std::size_t index) const {
    const std::uint64_t begin = align_down(first, step_bytes) + index * step_bytes;
    const std::uint64_t read_from = std::max(begin, first);
    return {read_from, std::min(begin + step_bytes, end) - read_from};
  }

  // Of the file, how far all is there from the extent's beginning on.
  [[nodiscard]] std::uint64_t read_bytes() const {
    const auto missing = std::ranges::find(done, false);
    const auto steps = static_cast<std::uint64_t>(missing - done.begin());
    const std::uint64_t read_end =
        std::min(align_down(first, step_bytes) + steps * step_bytes, extent.end());
    return read_end - std::min(read_end, extent.offset);
  }

  // With the lock. How many reads may be under way; nothing when it is to end.
  std::optional<std::uint32_t> look() {
    if (ends) {
      return std::nullopt;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_look) {
      allowed_now = std::min(reads_allowed(read_bytes()), reads_max);
      next_look = now + (allowed_now == 0 ? looks_while_waiting : looks_while_reading);
    }
    return allowed_now;
  }

  // Until the end, or what cannot be read, or need not. Throws what stands in its way.
  void read_steps();
  bool reap(IoQueue& queue);

  const std::shared_ptr<Storage> storage;
  const std::shared_ptr<File> file;
  const Range extent;
  const std::uint64_t first;  // both ends widened to what the drive wants
  const std::uint64_t end;
  const PageMapping memory;  // of huge pages, which keeps every alignment
  std::mutex mutex;
  std::condition_variable changed;
  ReadsAllowed reads_allowed;
  std::vector<bool> done;  // by step
  std::chrono::steady_clock::time_point next_look;
  std::uint32_t allowed_now = 0;
  bool ends = false;
  bool ended = false;
};

void FirstRead::State::read_steps() {
  const auto queue = storage->create_queue(reads_max);
  std::unique_lock lock(mutex);
  for (std::size_t next = 0; next < done.size() || queue->in_flight() > 0;) {
    const auto allowed = look();
    lock.unlock();
    if (!allowed) {
      next = done.size();
    }
    for (; next < done.size() && queue->in_flight() < *allowed; ++next) {
      const Range range = step(next);
      if (is_cached(*file, range)) {
        next = done.size();
        break;
      }
      queue->prepare({.file = file.get(),
                      .offset = range.offset,
                      .memory = {memory.data() + (range.offset - first), range.size},
                      .tag = next});
    }
    queue->submit_prepared();
    if (queue->in_flight() > 0 && !reap(*queue)) {
      next = done.size();
    }
    lock.lock();
    if (!ends && next < done.size() && *allowed == 0 && queue->in_flight() == 0) {
      changed.wait_until(lock, next_look);
    }
  }
}

// False when something could not be read.
bool FirstRead::State::reap(IoQueue& queue) {
  std::array<IoCompletion, reads_max> completions{};
  const std::size_t count = queue.reap(completions, looks_while_waiting);
  const std::scoped_lock lock(mutex);
  bool all_there = true;
  for (std::size_t index = 0; index < count; ++index) {
    const IoCompletion& completion = completions[index];
    const Range range = step(completion.tag);
    const std::uint64_t needed = std::min(range.end(), extent.end()) - range.offset;
    const bool there =
        completion.result >= 0 && static_cast<std::uint64_t>(completion.result) >= needed;
    done[completion.tag] = there;
    all_there = all_there && there;
  }
  return all_there;
}

std::unique_ptr<FirstRead> FirstRead::begin(const std::shared_ptr<Storage>& storage,
                                            const std::shared_ptr<File>& file,
                                            Range extent,
                                            std::uint64_t bytes_max,
                                            ReadsAllowed reads_allowed) {
  if (extent.size > bytes_max) {
    const std::uint64_t end = align_down(extent.offset + bytes_max, step_bytes);
    extent.size = end - std::min(extent.offset, end);
  }
  if (extent.size < step_bytes || !file->facts().direct ||
      is_cached(*file, {extent.offset, step_bytes})) {
    return nullptr;
  }
  auto state = std::make_shared<State>(
      storage, file, extent, drive_alignment(*file), std::move(reads_allowed));
  std::unique_ptr<FirstRead> read(new FirstRead(state));
  try {
    read->thread_ = quiet_thread("hippo-first", [state] {
      try {
        state->read_steps();
      } catch (...) {  // NOLINT(bugprone-empty-catch): whoever sends it meets it again.
      }
      const std::scoped_lock lock(state->mutex);
      state->reads_allowed = nullptr;
      state->ended = true;
      state->changed.notify_all();
    });
  } catch (const std::system_error&) {
    return nullptr;
  }
  return read;
}

FirstRead::FirstRead(std::shared_ptr<State> state) : state_(std::move(state)) {}

FirstRead::~FirstRead() {
  stop();
}

std::uint64_t FirstRead::read_bytes() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->read_bytes();
}

void FirstRead::stop() noexcept {
  if (!thread_.joinable()) {
    return;
  }
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->reads_allowed = nullptr;
  state_->changed.notify_all();
  const bool ended =
      state_->changed.wait_for(lock, first_read_patience, [&] { return state_->ended; });
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
}

std::shared_ptr<ReadAheadFile> FirstRead::end() {
  stop();
  const std::scoped_lock lock(state_->mutex);
  const Range range{state_->extent.offset, state_->read_bytes()};
  if (range.empty()) {
    return nullptr;
  }
  const std::shared_ptr<const std::byte> memory(
      state_, state_->memory.data() + (range.offset - state_->first));
  return std::make_shared<ReadAheadFile>(state_->file, range, memory);
}

}  // namespace hippogriff
