// Launches on streams of the caller's, and exchanges of host memory through a pinned piece.
#include "array/device_access.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <unordered_set>
#include <utility>

namespace hippogriff::ondemand {
namespace {

// Our kernels end by themselves: each of their waits is bounded. Work before them may take long.
constexpr std::chrono::hours work_patience{1};
constexpr std::chrono::seconds copy_patience{60};
constexpr std::size_t exchanged_bytes = std::size_t{1} << 20;
constexpr std::size_t exchanged_rows = 8192;
constexpr std::size_t asked_at_once_max = 64;  // launches that ask ahead and have not ended

RowKernel kernel_for(Direction direction) {
  return direction == Direction::from_array ? RowKernel::gather : RowKernel::scatter;
}

std::uint64_t address_of(const void* pinned) {
  return reinterpret_cast<std::uint64_t>(pinned);
}

}  // namespace

// What kernels and the host hand each other.
struct DeviceAccess::Exchange {
  std::byte bytes[exchanged_bytes];
  std::uint64_t numbers[exchanged_rows];
  std::uint32_t outcome;
};

DeviceAccess::DeviceAccess(StorageArray& array) : array_(array), device_(array.device()) {}

DeviceAccess::~DeviceAccess() {
  // What finish() could not give back may still be in use, until the process ends.
  static_cast<void>(kernels_.release());  // NOLINT(bugprone-unused-return-value)
  static_cast<void>(stream_.release());   // NOLINT(bugprone-unused-return-value)
  static_cast<void>(ahead_.release());    // NOLINT(bugprone-unused-return-value)
}

void DeviceAccess::make_ready() {
  if (kernels_ == nullptr) {
    kernels_ = RowKernels::load(device_);
  }
  if (stream_ == nullptr) {
    stream_ = device_.create_stream();
  }
}

DeviceAccess::Exchange& DeviceAccess::exchange() {
  if (exchange_ == nullptr) {
    exchange_ = reinterpret_cast<Exchange*>(device_.allocate_pinned(sizeof(Exchange)));
  }
  return *exchange_;
}

// What our stream does from now on comes after what is on the other one.
void DeviceAccess::follow(Stream& stream) {
  const auto event = device_.create_event();
  stream.record(*event);
  stream_->wait(*event);
}

RowMoves DeviceAccess::moves_of_array(std::uint64_t row_bytes) const {
  RowMoves moves;
  moves.cache = array_.cache();
  moves.row_bytes = row_bytes;
  moves.rows_there = array_.size_bytes() / row_bytes;
  return moves;
}

void DeviceAccess::launch(RowKernel kernel, const RowMoves& moves, Stream& stream) {
  kernels_->launch(kernel, moves, stream);
  if (kernel == RowKernel::gather || kernel == RowKernel::scatter) {
    array_.note_asked(moves.count * moves.lines_each());
  }
}

// Launches a kernel that uses the exchange, and waits for it. Throws what it met.
void DeviceAccess::run(RowKernel kernel, const RowMoves& moves, Stream& stream) {
  Exchange& shared = exchange();
  shared.outcome = 0;
  RowMoves told = moves;
  told.outcome = address_of(&shared.outcome);
  launch(kernel, told, stream);
  try {
    wait_for_stream(stream);
  } catch (...) {
    exchange_ = nullptr;  // the device may still use it: nobody else does again
    throw;
  }
  if (shared.outcome != 0) {
    array_.check();
    throw Error({.status = Status::io_error,
                 .operation = "access array",
                 .object = device_.info().name,
                 .detail = "the failure was cleared before it was told"});
  }
}

void DeviceAccess::wait_for_stream(Stream& stream) {
  const auto done = device_.create_event();
  stream.record(*done);
  if (!wait_for(*done, work_patience)) {
    throw Error({.status = Status::timed_out,
                 .operation = "access array",
                 .object = device_.info().name,
                 .detail = "the device has not come to it within an hour"});
  }
}

void DeviceAccess::wait() {
  const std::lock_guard lock(mutex_);
  if (stream_ != nullptr) {
    const DeviceScope scope(device_);
    wait_for_stream(*stream_);
  }
}

void DeviceAccess::after(void* stream) {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  make_ready();
  follow(*device_.borrow_stream(stream));
}

void DeviceAccess::move(Direction direction,
                        std::uint64_t offset,
                        std::byte* memory,
                        std::size_t size) {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  make_ready();
  follow(*device_.borrow_stream(nullptr));
  while (size != 0) {
    const std::size_t piece = std::min(size, exchanged_bytes);
    RowMoves moves = moves_of_array(piece);
    moves.base = offset;
    moves.rows_there = 1;
    moves.count = 1;
    moves.memory = address_of(exchange().bytes);
    if (direction == Direction::to_array) {
      std::memcpy(exchange().bytes, memory, piece);
    }
    run(kernel_for(direction), moves, *stream_);
    if (direction == Direction::from_array) {
      std::memcpy(memory, exchange().bytes, piece);
    }
    memory += piece;
    offset += piece;
    size -= piece;
  }
}

void DeviceAccess::move_rows(Direction direction,
                             std::span<const std::uint64_t> numbers,
                             std::size_t row_bytes,
                             std::byte* memory) {
  if (row_bytes > exchanged_bytes) {
    for (const std::uint64_t number : numbers) {
      move(direction, number * row_bytes, memory, row_bytes);
      memory += row_bytes;
    }
    return;
  }
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  make_ready();
  follow(*device_.borrow_stream(nullptr));
  const std::size_t rows_max = std::min(exchanged_rows, exchanged_bytes / row_bytes);
  if (direction == Direction::from_array) {
    array_.begin_gather(numbers.size() * moves_of_array(row_bytes).lines_each());
  }
  while (!numbers.empty()) {
    std::size_t count = std::min(numbers.size(), rows_max);
    if (direction == Direction::to_array) {  // of equal rows in one launch either might win
      std::unordered_set<std::uint64_t> seen;
      const auto first = numbers.first(count);
      const auto again = std::ranges::find_if(
          first, [&seen](std::uint64_t number) { return !seen.insert(number).second; });
      count = static_cast<std::size_t>(again - first.begin());
    }
    Exchange& shared = exchange();
    std::ranges::copy(numbers.first(count), shared.numbers);
    RowMoves moves = moves_of_array(row_bytes);
    moves.numbers = address_of(shared.numbers);
    moves.count = count;
    moves.memory = address_of(shared.bytes);
    if (direction == Direction::to_array) {
      std::memcpy(shared.bytes, memory, count * row_bytes);
    }
    run(kernel_for(direction), moves, *stream_);
    if (direction == Direction::from_array) {
      std::memcpy(memory, shared.bytes, count * row_bytes);
    }
    memory += count * row_bytes;
    numbers = numbers.subspan(count);
  }
  if (direction == Direction::from_array) {
    array_.end_gather();
  }
}

void DeviceAccess::require_device_memory(DeviceAddress address,
                                         std::uint64_t size_bytes,
                                         const char* what) {
  const auto allocation = device_.find(address);
  if (!allocation) {
    throw_invalid("access array",
                  std::string(what) + " are not in the memory of " + device_.info().name);
  }
  if (size_bytes > allocation->room_from(address)) {
    throw_invalid("access array",
                  std::string(what) + " have " + std::to_string(size_bytes) +
                      " bytes, and their allocation " +
                      std::to_string(allocation->room_from(address)));
  }
}

// The pages that a file no longer has may hold zeros now: its reads tell, through the cache.
bool DeviceAccess::has_all_to_read() {
  const Backing& backing = array_.backing();
  return backing.in_memory() ||
         backing.files.front().file->size_now() >= backing.file_offset + backing.size_bytes;
}

void DeviceAccess::queue_rows(Direction direction, const DeviceRows& rows) {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  require_device_memory(rows.numbers, rows.count * rows.number_bytes, "the row numbers");
  require_device_memory(rows.memory, rows.count * rows.row_bytes, "the rows");
  RowMoves moves = moves_of(rows);
  if (direction == Direction::from_array && array_.reuse() != nullptr && has_all_to_read()) {
    moves.storage = address_of(array_.row_reads().past);
    const std::uint64_t lines = moves.count * moves.lines_each();
    if (moves.reads_past_quickly() && !array_.reuse()->takes_cache(lines, array_.served().reads)) {
      launch_on(RowKernel::zero_copy, moves, rows.stream);
      array_.note_past(rows.count * rows.row_bytes);
      return;
    }
  }
  if (direction == Direction::from_array) {
    array_.begin_gather(moves.count * moves.lines_each());
  }
  launch_on(kernel_for(direction), moves, rows.stream);
}

RowMoves DeviceAccess::moves_of(const DeviceRows& rows) const {
  RowMoves moves = moves_of_array(rows.row_bytes);
  moves.numbers = rows.numbers.value;
  moves.count = rows.count;
  moves.memory = rows.memory.value;
  moves.number_bytes = rows.number_bytes;
  moves.numbers_signed = rows.numbers_signed ? 1 : 0;
  return moves;
}

// On the caller's stream, before what comes on ours from now on.
void DeviceAccess::launch_on(RowKernel kernel, const RowMoves& moves, void* stream) {
  make_ready();
  const auto theirs = device_.borrow_stream(stream);
  theirs->record(*device_.create_event());  // refuses a stream that captures a graph
  launch(kernel, moves, *theirs);
  follow(*theirs);
}

void DeviceAccess::queue_prefetch(const DeviceRows& rows) {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  require_device_memory(rows.numbers, rows.count * rows.number_bytes, "the row numbers");
  launch_on(RowKernel::prefetch, moves_of(rows), rows.stream);
  note_ahead();
}

// The rows will be in the cache.
void DeviceAccess::note_ahead() {
  if (array_.reuse() != nullptr) {
    array_.reuse()->asked_ahead();
  }
}

void DeviceAccess::queue_zero_copy(const DeviceRows& rows) {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  const std::byte* const storage = array_.put_in_place();
  if (storage == nullptr) {
    throw_unsupported("read array past its cache",
                      device_.info().name + " cannot read " + array_.backing().name +
                          " in place: it is not whole in the page cache, or its pages cannot be "
                          "registered");
  }
  require_device_memory(rows.numbers, rows.count * rows.number_bytes, "the row numbers");
  require_device_memory(rows.memory, rows.count * rows.row_bytes, "the rows");
  RowMoves moves = moves_of(rows);
  moves.storage = address_of(storage);
  launch_on(RowKernel::zero_copy, moves, rows.stream);
}

Stream& DeviceAccess::ahead() {
  make_ready();
  if (ahead_ == nullptr) {
    ahead_ = device_.create_stream();
  }
  return *ahead_;
}

// Whether the device keeps up with what is asked of it.
bool DeviceAccess::may_ask() {
  while (!asked_for_.empty() && asked_for_.front()->completed()) {
    asked_for_.pop_front();
  }
  return asked_for_.size() < asked_at_once_max;
}

void DeviceAccess::prefetch(std::uint64_t offset, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  Stream& stream = ahead();
  if (!may_ask()) {
    return;
  }
  RowMoves moves = moves_of_array(size);
  moves.base = offset;
  moves.rows_there = 1;
  moves.count = 1;
  kernels_->launch(RowKernel::prefetch, moves, stream);
  asked_for_.push_back(device_.create_event());
  stream.record(*asked_for_.back());
  note_ahead();
}

// Waits for the launches, of which each is over when the commands are posted: the numbers are in
// the exchange as long.
void DeviceAccess::prefetch_rows(std::span<const std::uint64_t> numbers, std::size_t row_bytes) {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  Stream& stream = ahead();
  RowMoves moves = moves_of_array(row_bytes);
  moves.count = numbers.size();
  // Those that together are as many lines as one call asks for at most.
  const std::uint64_t rows_max = (moves.ask_count() - 1) / moves.lines_each() + 1;
  numbers = numbers.first(std::min<std::uint64_t>(numbers.size(), rows_max));
  while (!numbers.empty() && may_ask()) {
    const std::size_t count = std::min(numbers.size(), exchanged_rows);
    Exchange& shared = exchange();
    std::ranges::copy(numbers.first(count), shared.numbers);
    moves.numbers = address_of(shared.numbers);
    moves.count = count;
    run(RowKernel::prefetch, moves, stream);
    numbers = numbers.subspan(count);
  }
  note_ahead();
}

void DeviceAccess::flush() {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  if (array_.cache().writable) {
    make_ready();
    follow(*device_.borrow_stream(nullptr));
    run(RowKernel::flush, moves_of_array(1), *stream_);
  }
  array_.sync();
}

DeviceAddress DeviceAccess::view(std::size_t element_size) {
  const std::lock_guard lock(mutex_);
  const auto known = views_.find(element_size);
  if (known != views_.end()) {
    return known->second;
  }
  array_.note_view();
  using View = array_view<std::byte>;
  const View view(array_.cache(), array_.size_bytes() / element_size);
  const DeviceScope scope(device_);
  const DeviceAddress there = device_.allocate(sizeof view);
  try {
    const auto stream = device_.create_stream();
    stream->copy_to_device(there, reinterpret_cast<const std::byte*>(&view), sizeof view);
    if (!wait_for(*stream, copy_patience)) {
      throw Error({.status = Status::timed_out,
                   .operation = "view array",
                   .object = device_.info().name,
                   .detail = "the device did not take the view"});
    }
    views_[element_size] = there;
  } catch (...) {
    device_.release(there);
    throw;
  }
  return there;
}

bool DeviceAccess::finish() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    const DeviceScope scope(device_);
    for (Stream* const stream : {stream_.get(), ahead_.get()}) {
      if (stream == nullptr) {
        continue;
      }
      const auto done = device_.create_event();
      stream->record(*done);
      if (!wait_for(*done, work_patience)) {
        return false;
      }
    }
    asked_for_.clear();
    kernels_.reset();
    stream_.reset();
    ahead_.reset();
    for (const auto& [size, address] : std::exchange(views_, {})) {
      device_.release(address);
    }
    if (exchange_ != nullptr) {
      device_.release_pinned(reinterpret_cast<std::byte*>(std::exchange(exchange_, nullptr)));
    }
  } catch (const std::exception& error) {
    // A device that has failed runs nothing any more, and what it held went with it.
    std::fprintf(stderr, "hippogriff: closing an array: %s\n", error.what());
  }
  return true;
}

}  // namespace hippogriff::ondemand
