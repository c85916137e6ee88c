// From a caller's wish to a transfer under way: every mistake of the caller's is found here.
#include "storage/atomic_file.hpp"
#include "storage/file_probe.hpp"
#include "transfer/caller_checks.hpp"
#include "transfer/cost_model.hpp"
#include "transfer/landing_memory.hpp"
#include "transfer/outlook.hpp"
#include "transfer/read_ahead_file.hpp"
#include "transfer/runtime.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace hippogriff {

namespace {

// In which a stream without work has reached an event.
constexpr std::chrono::microseconds idle_stream_patience{100};

// What to do with several destinations is what is done with one: the first, as far as it goes.
Submission normalised(Submission submission) {
  if (submission.destinations.empty()) {
    return submission;
  }
  submission.destinations = make_destinations(std::move(submission.destinations));
  const Segment& first = submission.destinations.front();
  submission.address = first.address;
  submission.offset = first.range.offset;
  submission.size = submission.destinations.back().range.end() - first.range.offset;
  return submission;
}

bool wants(const Submission& submission, hippogriff_flags flag) {
  return (submission.flags & flag) != 0;
}

AllocationInfo find_memory(const Submission& submission, DeviceState& state) {
  if (const auto own = state.allocation_of(submission.address)) {
    return *own;
  }
  const DeviceScope scope(*state.device);
  const auto allocation = state.device->find(submission.address);
  if (!allocation) {
    throw_caller(submission, "the pointer is not memory of device " + state.device->info().name);
  }
  return *allocation;
}

// Where a transfer goes or comes from. No allocation: memory that is made for it, or the caller's
// own ordinary memory.
struct Target {
  DeviceState& state;
  std::optional<AllocationInfo> allocation;
};

Target target_of(const Submission& submission, Runtime& runtime) {
  const bool named = !submission.device.empty();
  if (wants(submission, HIPPOGRIFF_HOST_MEMORY)) {
    DeviceState& state = runtime.device(named ? submission.device : "host");
    if (!submission.address.is_null() && !state.device->info().can.host_addressable) {
      throw_caller(submission,
                   "ordinary host memory needs the device host without HIPPOGRIFF_HOST_LINK, not " +
                       state.device->info().name + " as it is");
    }
    return {state, std::nullopt};
  }
  if (submission.address.is_null()) {
    return {runtime.device(submission.device), std::nullopt};
  }
  if (!named) {
    const auto [state, allocation] = runtime.locate(submission.address);
    return {state, allocation};
  }
  DeviceState& state = runtime.device(submission.device);
  return {state, find_memory(submission, state)};
}

// Many destinations lie in few allocations, in no order. Returns them with neighbours joined.
Destinations checked_destinations(const Submission& submission, const Target& target) {
  Destinations joined;
  AllocationInfo allocation = target.allocation.value_or(AllocationInfo{});
  const auto part = [&submission](const Segment& segment) {
    Submission one;
    one.path = submission.path;
    one.offset = segment.range.offset;
    one.address = segment.address;
    return one;
  };
  for (const Segment& segment : submission.destinations) {
    if (!target.allocation) {
      append_joined(joined, segment);
      continue;
    }
    if (segment.address.value - allocation.base.value >= allocation.size_bytes) {
      allocation = find_memory(part(segment), target.state);
    }
    const std::uint64_t room = allocation.room_from(segment.address);
    if (segment.range.size > room) {
      throw_caller(part(segment),
                   "the part of " + bytes(segment.range.size) +
                       " here goes to device memory that holds only " + bytes(room) +
                       " from its pointer on");
    }
    if (segment.address.value == allocation.base.value) {
      joined.push_back(segment);  // its neighbour in memory is another allocation
    } else {
      append_joined(joined, segment);
    }
  }
  return joined;
}

void check_room(const Submission& submission, const Target& target, std::uint64_t size) {
  if (!target.allocation) {
    return;
  }
  const std::uint64_t room = target.allocation->room_from(submission.address);
  if (size > room) {
    throw_caller(submission,
                 "the transfer has " + bytes(size) + ", but the device memory holds only " +
                     bytes(room) + " from the pointer on");
  }
}

std::uint64_t recv_size(const Submission& submission, const Target& target) {
  if (submission.address.is_null()) {
    throw_caller(submission, "the device pointer is NULL");
  }
  if (submission.size > 0) {
    return submission.size;
  }
  if (!target.allocation) {
    throw_caller(submission, "size 0 needs memory that hippogriff or the device allocated");
  }
  return target.allocation->room_from(submission.address);
}

// A block device does not grow: what it cannot hold is refused before any of it is written.
void check_block_device(const Submission& submission, const TransferRequest& request) {
  const FileIdentity identity = request.file->identity();
  if (!identity.is_block_device || request.extent.end() <= identity.size) {
    return;
  }
  const std::uint64_t room = identity.size - std::min(identity.size, request.extent.offset);
  throw Error({.status = Status::io_error,
               .operation = verb(submission.direction),
               .object = request.file->facts().path,
               .offset = request.extent.offset,
               .errno_value = ENOSPC,
               .detail = bytes(request.extent.size) + " are more than the " + bytes(room) +
                         " that the block device has from the offset on"});
}

void open_for_recv(const Submission& submission,
                   const std::shared_ptr<Storage>& storage,
                   TransferRequest& request) {
  if (submission.path.empty()) {
    request.file = storage->adopt(submission.fd, FileAccess::write);
    check_block_device(submission, request);
    return;
  }
  const bool whole = wants(submission, HIPPOGRIFF_REPLACE);
  try {
    request.file = storage->open(submission.path, FileAccess::read_write);
    if (request.file->identity().is_block_device) {
      check_block_device(submission, request);
      request.flags |= HIPPOGRIFF_DURABLE;  // as the whole file that it stands for would be
      return;
    }
    const bool covers =
        request.extent.offset == 0 && request.extent.size >= request.file->identity().size;
    if (!covers && !whole) {
      return;
    }
  } catch (const Error& error) {
    if (error.failure().errno_value != ENOENT) {
      throw;
    }
  }
  request.replaces = std::make_shared<AtomicFile>(storage, submission.path);
  request.file = request.replaces->file();
}

// What was read before is parked, and came from the drive, until the transfer ends.
void count_read_ahead(Transfer& transfer, Parking& parking) {
  const std::shared_ptr<ReadAheadFile> ahead = transfer.request().read_ahead;
  const std::uint64_t read_bytes = ahead->read_bytes();
  transfer.count_cold(read_bytes);
  static_cast<void>(transfer.host_memory.take(read_bytes));
  parking.count(read_bytes);
  transfer.on_finish([ahead, read_bytes, &parking](Transfer& ended) {
    ahead->forget();
    parking.give_back(read_bytes);
    ended.host_memory.give_back(read_bytes);
  });
}

bool guarded_free(DeviceState& state, DeviceAddress address) {
  try {
    return state.free(address);
  } catch (const Error&) {
    return false;
  }
}

// What a refusal is about, as the caller called it: the path, or the file of the descriptor.
std::string named(const Submission& submission) {
  return submission.path.empty() && submission.fd >= 0 ? path_of_descriptor(submission.fd)
                                                       : submission.path;
}

}  // namespace

std::shared_ptr<Transfer> Runtime::submit(Submission given) {
  Submission about;
  about.path = given.path;
  about.fd = given.fd;
  try {
    return submit_checked(normalised(std::move(given)));
  } catch (const Error& error) {
    Failure failure = error.failure();
    if (!failure.object.empty() || failure.status == Status::not_initialized) {
      throw;
    }
    failure.object = named(about);
    throw Error(std::move(failure));
  }
}

std::shared_ptr<Transfer> Runtime::submit_checked(const Submission& submission) {
  checked_end(submission, submission.size);
  if (submission.host_memory_bytes > 0 && submission.host_memory_bytes < HostBudget::bytes_min) {
    throw_caller(submission,
                 "host_memory is " + bytes(submission.host_memory_bytes) + "; one channel needs " +
                     bytes(HostBudget::bytes_min));
  }
  if (submission.direction == Direction::send && wants(submission, HIPPOGRIFF_FREE_SOURCE)) {
    throw_caller(submission, "HIPPOGRIFF_FREE_SOURCE is of a recv: a send fills its memory");
  }
  if (wants(submission, HIPPOGRIFF_REPLACE) && (submission.direction == Direction::send ||
                                                submission.path.empty() || submission.offset > 0)) {
    throw_caller(submission, "HIPPOGRIFF_REPLACE is of a recv by path, at offset 0");
  }
  TransferRequest request;
  request.direction = submission.direction;
  request.route = submission.route;
  request.flags = submission.flags;
  request.stream = submission.stream;
  request.address = submission.address;
  request.host_memory_bytes = submission.host_memory_bytes;
  request.checksums = submission.checksums;
  // A context takes a tenth of a second, and more beside others that make one.
  const bool opens = opens_gpu(submission);
  const auto first = opens ? first_read(submission) : nullptr;
  const bool hints = opens && first == nullptr && !first_read_runs_;
  const auto ahead = hints ? prefetch_for(submission) : nullptr;
  const Target target = target_of(submission, *this);
  request.device = target.state.device;
  if (submission.direction == Direction::send) {
    request.read_ahead = first != nullptr ? first->end() : nullptr;
    request.file = request.read_ahead;
    if (request.file == nullptr) {
      request.file = open_for_send(submission, *storage_);
    }
    request.extent = send_extent(submission, *request.file);
    prefetcher_.sent(*request.file, request.extent);
    if (submission.destinations.empty()) {
      check_room(submission, target, request.extent.size);
    } else {
      request.destinations = checked_destinations(submission, target);
    }
  } else {
    request.extent = {submission.offset, recv_size(submission, target)};
    checked_end(submission, request.extent.size);
    check_room(submission, target, request.extent.size);
    open_for_recv(submission, storage_, request);
  }
  return start(submission, std::move(request), target.state);
}

std::shared_ptr<Transfer> Runtime::start(const Submission& submission,
                                         TransferRequest request,
                                         DeviceState& state) {
  const DeviceScope scope(*state.device);
  std::unique_ptr<Event> after;
  bool ready = true;
  if (wants(submission, HIPPOGRIFF_AFTER_STREAM)) {
    after = state.device->create_event();
    state.device->borrow_stream(submission.stream)->record(*after);
    // A stream without work says so a moment later. Waiting for that costs less than parking.
    ready = wait_for(*after, idle_stream_patience);
  }
  DeviceAddress allocated;
  const bool allocates = request.address.is_null() && request.extent.size > 0;
  if (allocates && ready) {
    allocated = try_allocate(submission, request.extent.size, state);
    ready = !allocated.is_null();
  }
  std::shared_ptr<Transfer> transfer;
  try {
    auto notice = notice_of(request.extent.size);
    request.new_memory = lies_in_new_memory(request, allocated);
    auto seen = outlook(
        state,
        *request.file,
        {.extent = request.extent,
         .direction = request.direction,
         .forced = request.route,
         .device_ready = ready || request.direction == Direction::recv,
         .scattered = !request.destinations.empty(),
         .in_place = lies_in_place(request),
         .new_memory = request.new_memory,
         .hashes = request.checksums != nullptr,
         .read_ahead_bytes = request.read_ahead != nullptr ? request.read_ahead->read_bytes() : 0,
         .host_memory_bytes = request.host_memory_bytes,
         .notice = notice.get()});
    const Plan& plan = seen.decision.choice().plan;
    const bool sends = request.direction == Direction::send;
    const bool by_drive = plan.direct_io_depth > 0 || plan.direct_channels > 0 || plan.park;
    const bool mixed =
        plan.direct_io_depth == 0 || plan.buffered_channels > 0 || plan.mapped_channels > 0;
    const bool look = sends && by_drive && mixed && request.file->facts().direct;
    const Warmth otherwise = plan.direct_io_depth > 0 && !mixed ? Warmth::cold : Warmth::warm;
    File& file = *request.file;
    transfer = std::make_shared<Transfer>(std::move(request),
                                          std::move(seen.decision),
                                          look ? make_classifier(file) : nullptr,
                                          otherwise);
    if (notice != nullptr) {
      transfer->notice = std::move(notice);
      let_ask_for_others(*transfer, state, uses_drive(seen.facts));
    }
  } catch (...) {
    if (!allocated.is_null()) {
      state.device->release(allocated);
    }
    throw;
  }
  if (transfer->request().read_ahead != nullptr) {
    count_read_ahead(*transfer, state.engine->parking());
  }
  transfer->after = std::move(after);
  transfer->piece_bytes_max = settings_.piece_bytes_max;
  const bool parks = transfer->request().direction == Direction::send &&
                     transfer->decision().chosen == Route::parked;
  transfer->gate_open = ready && !parks;
  transfer->set_address(allocates ? allocated : transfer->request().address);
  launch(submission, transfer, state);
  return transfer;
}

// As long as it lives.
void Runtime::let_ask_for_others(Transfer& transfer, const DeviceState& state, bool by_drive) {
  transfer.drive_depth_max = [this, &state, &transfer] { return drive_depth_max(transfer, state); };
  if (by_drive) {
    transfer.others_need_drive = [this, &transfer] { return others_need_drive(transfer.file()); };
  }
}

// Memory for a send that brings none, or null when it has to wait for some.
DeviceAddress Runtime::try_allocate(const Submission& submission,
                                    std::uint64_t size,
                                    DeviceState& state) {
  try {
    if (state.memory_claim != nullptr && !state.memory_claim->is_there_now()) {
      throw Error({.status = Status::out_of_device_memory,
                   .operation = "allocate",
                   .object = state.device->info().name,
                   .detail = "what this command reserved is not free now"});
    }
    return state.device->allocate_now(size);
  } catch (const Error& error) {
    const bool waits = submission.memory_timeout_ms >= 0 &&
                       size <= state.device->memory().total_bytes &&
                       error.failure().status == Status::out_of_device_memory;
    if (!waits) {
      throw;
    }
    return {};
  }
}

// The time that is not the caller's own begins when the command has its memory, for which the
// command may wait.
void Runtime::set_memory_deadline(const Submission& submission,
                                  Transfer& transfer,
                                  DeviceState& state) const {
  const auto own = std::chrono::milliseconds(submission.memory_timeout_ms);
  const auto usual = settings_.memory_timeout;
  transfer.memory_deadline = Clock::now() + (own.count() > 0 ? own : usual);
  const bool allocates = transfer.address().is_null() && !transfer.request().extent.empty();
  if (state.memory_claim == nullptr || !allocates) {
    return;
  }
  if (own.count() <= 0) {
    transfer.memory_deadline = Clock::time_point::max();
  }
  // As long as the transfer: it may park for long before it asks.
  const auto wish = std::make_shared<node::BackgroundClaim::Wish>(*state.memory_claim);
  transfer.memory_promised = [wish, usual](Transfer& waiting) {
    const bool there = wish->is_there();
    if (there && waiting.memory_deadline == Clock::time_point::max()) {
      waiting.memory_deadline = Clock::now() + usual;
    }
    return there;
  };
  transfer.on_finish([](Transfer& ended) { ended.memory_promised = nullptr; });
}

// Registers what the transfer uses, hooks its end, orders the streams, hands it to the engine.
void Runtime::launch(const Submission& submission,
                     const std::shared_ptr<Transfer>& transfer,
                     DeviceState& state) {
  const TransferRequest& request = transfer->request();
  set_memory_deadline(submission, *transfer, state);
  const auto use = request.direction == Direction::send ? MemoryUse::writes : MemoryUse::reads;
  const auto uses = std::make_shared<MemoryUses>(state.in_flight);
  if (!request.address.is_null() && request.extent.size > 0) {
    transfer->for_each_part(request.extent, [&](const Segment& part) {
      uses->begin(part.address, part.range.size, use);
    });
  } else if (request.address.is_null() && !transfer->address().is_null()) {
    state.keep(transfer->address(), request.extent.size);
    uses->begin(transfer->address(), request.extent.size, use);
  }
  transfer->on_allocated([&state, uses](Transfer& ready) {
    state.keep(ready.address(), ready.request().extent.size);
    uses->begin(ready.address(), ready.request().extent.size, MemoryUse::writes);
  });
  transfer->on_released([&state, uses](Transfer& done) {
    uses->end();
    released(done, state);
  });
  try {
    if (wants(submission, HIPPOGRIFF_BEFORE_STREAM)) {
      const HostFlag flag = state.flags.take(transfer);
      transfer->on_finish([&state, flag](Transfer&) { state.flags.raise(flag); });
      state.device->borrow_stream(submission.stream)->wait_flag(flag);
    }
    prepare_file(*transfer);
  } catch (...) {
    transfer->fail(current_failure());
    transfer->finish();
    throw;
  }
  {
    const std::lock_guard lock(traffic_mutex_);
    for (auto& entry : active_) {
      if (const auto other = entry.second.transfer.lock()) {
        other->alone = false;
      }
    }
    transfer->alone = active_.empty() && !any_others(transfer->decision().load);
    transfer->copies_before = state.engine->copies();
    active_[transfer.get()] = {
        transfer, drive_key(request.file->facts()), request.direction, &state};
  }
  transfer->on_finish([this, &state](Transfer& done) { transfer_ended(done, state); });
  state.engine->start(transfer);
}

// Makes the file that a receive lengthens long enough: mappings need that, direct writes beyond the
// end go one by one, and a full disk is known early. Its last bytes are held back, so that it has
// its full size only when all is there. A file that nobody sees yet needs no such care, nor what is
// written in one piece.
void Runtime::prepare_file(Transfer& transfer) {
  const TransferRequest& request = transfer.request();
  const Plan& plan = transfer.decision().choice().plan;
  const bool mapped = plan.mapped_channels > 0;
  const bool seen = request.replaces == nullptr;
  Range range = request.extent;
  const std::uint64_t first_cut = align_down(range.offset, WorkMap::cut_bytes);
  const bool one_piece =
      static_cast<double>(range.end() - first_cut) <= EngineShape::piece_bytes_min && !mapped &&
      plan.direct_io_depth == 0;
  const std::uint64_t size = request.file->identity().size;
  if (request.direction == Direction::send || size >= range.end() || (seen && one_piece)) {
    return;
  }
  // Not before the end that the file has now: what lies before it does not lengthen it.
  const std::uint64_t last = std::max(align_down(range.end() - 1, WorkMap::cut_bytes), size);
  if (seen && last > range.offset) {
    transfer.work.hold_back(last);
    range.size = last - range.offset;
  }
  // Pages of a file in memory are made by the lanes, side by side.
  if (mapped || !request.file->facts().in_memory) {
    request.file->allocate(range);
  } else if (!seen) {
    request.file->truncate(range.end());
  } else if (range.size < request.extent.size && range.end() > size) {
    // By a byte of its own, never by ftruncate: the file may have grown further meanwhile.
    const std::byte filler{};
    static_cast<void>(request.file->write({&filler, 1}, range.end() - 1));
  }
}

void Runtime::released(Transfer& transfer, DeviceState& state) {
  const TransferRequest& request = transfer.request();
  const DeviceAddress address = transfer.address();
  if (address.is_null()) {
    return;
  }
  const bool send_failed =
      request.direction == Direction::send && request.address.is_null() && transfer.failed();
  const bool source_spent = (request.flags & HIPPOGRIFF_FREE_SOURCE) != 0 && !transfer.failed();
  if (send_failed || source_spent) {
    // When another transfer uses it meanwhile, it stays the caller's, as any other memory.
    static_cast<void>(guarded_free(state, address));
    if (send_failed) {
      transfer.set_address({});
    }
  }
}

void Runtime::transfer_ended(const Transfer& transfer, const DeviceState& state) {
  try {
    observe(transfer, state);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): what is not learnt is done
  }
  const std::lock_guard lock(traffic_mutex_);
  active_.erase(&transfer);
  ++stats_.finished;
  if (transfer.failed()) {
    ++(transfer.status() == Status::cancelled ? stats_.cancelled : stats_.failed);
  }
  const auto direction = static_cast<std::size_t>(transfer.request().direction);
  for (std::size_t lane = 0; lane < lane_count; ++lane) {
    const LaneTally tally = transfer.tally(static_cast<Lane>(lane));
    if (tally.bytes > 0) {
      RouteStats& stats = stats_.lanes[direction][lane];
      ++stats.transfers;
      stats.bytes += tally.bytes;
      stats.seconds += seconds_between(tally.first, tally.last);
    }
  }
}

bool Runtime::transfer_small(const Submission& submission) {
  if (submission.fd < 0 || submission.address.is_null() || submission.size == 0 ||
      submission.size > SmallPath::size_bytes_max || submission.route != Route::automatic ||
      !settings_.routes.empty() || submission.offset > INT64_MAX - submission.size ||
      submission.flags != HIPPOGRIFF_AFTER_STREAM) {
    return false;
  }
  const Target target = target_of(submission, *this);
  check_room(submission, target, submission.size);
  DeviceState& state = target.state;
  const bool sends = submission.direction == Direction::send;
  bool done = false;
  const auto begin = Clock::now();
  {
    const InFlight::Use use(state.in_flight,
                            submission.address,
                            submission.size,
                            sends ? MemoryUse::writes : MemoryUse::reads);
    const DeviceScope scope(*state.device);
    const SmallTransfer small{.fd = submission.fd,
                              .address = submission.address,
                              .offset = submission.offset,
                              .size_bytes = submission.size,
                              .after_stream = true,
                              .stream = submission.stream};
    done = sends ? state.small.send(small) : state.small.recv(small);
  }
  if (done) {
    const double seconds = seconds_between(begin, Clock::now());
    const std::lock_guard lock(traffic_mutex_);
    RouteStats& stats = stats_.small[static_cast<std::size_t>(submission.direction)];
    ++stats.transfers;
    stats.bytes += submission.size;
    stats.seconds += seconds;
  }
  return done;
}

}  // namespace hippogriff
