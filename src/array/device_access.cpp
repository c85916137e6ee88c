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

// Launches a kernel that uses the exchange, and waits for it. Throws what it met.
void DeviceAccess::run(RowKernel kernel, const RowMoves& moves) {
  Exchange& shared = exchange();
  shared.outcome = 0;
  RowMoves told = moves;
  told.outcome = address_of(&shared.outcome);
  kernels_->launch(kernel, told, *stream_);
  try {
    wait_for_stream();
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

void DeviceAccess::wait_for_stream() {
  const auto done = device_.create_event();
  stream_->record(*done);
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
    wait_for_stream();
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
    run(kernel_for(direction), moves);
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
    run(kernel_for(direction), moves);
    if (direction == Direction::from_array) {
      std::memcpy(memory, shared.bytes, count * row_bytes);
    }
    memory += count * row_bytes;
    numbers = numbers.subspan(count);
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

void DeviceAccess::queue_rows(Direction direction, const DeviceRows& rows) {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  require_device_memory(rows.numbers, rows.count * rows.number_bytes, "the row numbers");
  require_device_memory(rows.memory, rows.count * rows.row_bytes, "the rows");
  make_ready();
  const auto stream = device_.borrow_stream(rows.stream);
  stream->record(*device_.create_event());  // refuses a stream that captures a graph
  RowMoves moves = moves_of_array(rows.row_bytes);
  moves.numbers = rows.numbers.value;
  moves.count = rows.count;
  moves.memory = rows.memory.value;
  moves.number_bytes = rows.number_bytes;
  moves.numbers_signed = rows.numbers_signed ? 1 : 0;
  kernels_->launch(kernel_for(direction), moves, *stream);
  follow(*stream);
}

void DeviceAccess::flush() {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  if (array_.cache().writable) {
    make_ready();
    follow(*device_.borrow_stream(nullptr));
    run(RowKernel::flush, moves_of_array(1));
  }
  array_.sync();
}

DeviceAddress DeviceAccess::view(std::size_t element_size) {
  const std::lock_guard lock(mutex_);
  const auto known = views_.find(element_size);
  if (known != views_.end()) {
    return known->second;
  }
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
    if (stream_ != nullptr) {
      const auto done = device_.create_event();
      stream_->record(*done);
      if (!wait_for(*done, work_patience)) {
        return false;
      }
    }
    kernels_.reset();
    stream_.reset();
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
