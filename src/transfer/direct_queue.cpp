// Widening, continuing, falling back.
#include "transfer/direct_queue.hpp"

#include "transfer/cost_model.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace hippogriff {

namespace {

std::uint32_t requests_per_depth(const Transfer& transfer) {
  return transfer.request().direction == Direction::send ? DirectQueue::reads_per_depth
                                                         : DirectQueue::writes_per_depth;
}

}  // namespace

std::uint64_t drive_alignment(const File& file) {
  return std::max<std::uint64_t>(WorkMap::cut_bytes, file.facts().direct_alignment);
}

DirectQueue::DirectQueue(LaneContext& context, Transfer& transfer, std::size_t depth)
    : context_(context),
      transfer_(transfer),
      alignment_(drive_alignment(transfer.file())),
      queue_(context.storage.create_queue(depth)) {}

std::uint64_t DirectQueue::lead_bytes(Range piece) const {
  return piece.offset - align_down(piece.offset, alignment_);
}

Range DirectQueue::aligned_part(Range piece) const {
  const std::uint64_t begin = align_up(piece.offset, alignment_);
  const std::uint64_t end = align_down(piece.end(), alignment_);
  return begin < end ? Range{begin, end - begin} : Range{piece.offset, 0};
}

void DirectQueue::read(Range piece,
                       std::byte* memory,
                       std::uint64_t tag,
                       std::span<std::byte> buffer) {
  const std::uint64_t begin = align_down(piece.offset, alignment_);
  const std::uint64_t size = align_up(piece.end(), alignment_) - begin;
  Request request;
  request.io = {.kind = IoRequest::Kind::read,
                .file = &transfer_.file(),
                .direct = transfer_.file().facts().direct,
                .offset = begin,
                .memory = {memory, size},
                .tag = tag,
                .buffer = buffer};
  request.piece = piece;
  request.needed = piece.end() - begin;
  start(tag, request, &IoQueue::prepare);
}

void DirectQueue::write(Range piece,
                        std::byte* memory,
                        std::uint64_t tag,
                        std::span<std::byte> buffer) {
  Request request;
  request.io = {.kind = IoRequest::Kind::write,
                .file = &transfer_.file(),
                .direct = transfer_.file().facts().direct && piece.offset % alignment_ == 0 &&
                          piece.size % alignment_ == 0,
                .offset = piece.offset,
                .memory = {memory, piece.size},
                .tag = tag,
                .buffer = buffer};
  request.piece = piece;
  request.needed = piece.size;
  start(tag, request, &IoQueue::submit);
}

void DirectQueue::start(std::uint64_t tag, Request request, Begin begin) {
  request.begin = Clock::now();
  const auto entry = requests_.emplace(tag, request).first;  // what is under way is always known
  try {
    (queue_.get()->*begin)(request.io);
  } catch (...) {
    requests_.erase(entry);
    throw;
  }
}

std::vector<DirectQueue::Finished> DirectQueue::reap(std::chrono::nanoseconds timeout) {
  std::array<IoCompletion, 32> completions{};
  const std::size_t count = queue_->reap(completions, timeout);
  std::vector<Finished> finished;
  for (std::size_t index = 0; index < count; ++index) {
    const IoCompletion& completion = completions[index];
    const auto found = requests_.find(completion.tag);
    HIPPO_ASSERT(found != requests_.end());
    Request& request = found->second;
    Failure failure;
    if (!advance(request, completion.result, failure)) {
      continue;
    }
    if (context_.trace != nullptr) {
      context_.trace->slice(
          context_.cpu_track,
          request.io.kind == IoRequest::Kind::read ? "direct read" : "direct write",
          request.begin,
          Clock::now(),
          request.piece.offset,
          request.piece.size);
    }
    finished.push_back({completion.tag, request.piece, std::move(failure)});
    requests_.erase(found);
  }
  return finished;
}

// Takes one result in. False when the request goes on.
bool DirectQueue::advance(Request& request, std::int64_t result, Failure& failure) {
  const bool reading = request.io.kind == IoRequest::Kind::read;
  try {
    if ((result == -EINVAL && request.io.direct) || result == -EAGAIN || result == -EINTR ||
        result == -ECANCELED) {
      // The file system takes O_DIRECT opens but not this transfer, or the queue is short of
      // something, as of workers: a plain read or write tries as often as it takes.
      move_buffered(request);
      return true;
    }
    if (result < 0) {
      throw_io(reading ? "read" : "write",
               transfer_.file().facts().path,
               request.io.offset,
               static_cast<int>(-result));
    }
    request.moved += static_cast<std::uint64_t>(result);
    if (request.moved >= request.needed) {
      return true;
    }
    if (result == 0) {
      if (reading) {
        throw_short_file(transfer_, request.io.offset);
      }
      throw_io("write", transfer_.file().facts().path, request.io.offset, EIO);
    }
    // The rest of a short result; what is not aligned any more goes through the page cache.
    if (request.io.direct && static_cast<std::uint64_t>(result) % alignment_ != 0) {
      move_buffered(request);
      return true;
    }
    const auto step = static_cast<std::size_t>(result);
    request.io.offset += step;
    request.io.memory = request.io.memory.subspan(step);
    queue_->submit(request.io);
    return false;
  } catch (...) {
    failure = current_failure();
    return true;
  }
}

void DirectQueue::move_buffered(Request& request) {
  const std::uint64_t begin = request.io.offset;
  if (request.io.kind == IoRequest::Kind::read) {
    const std::uint64_t lead = lead_bytes(request.piece);
    const std::uint64_t base = align_down(request.piece.offset, alignment_);
    std::byte* memory = request.io.memory.data() - (request.io.offset - base);
    read_piece(context_, transfer_, request.piece, memory + lead);
    return;
  }
  const std::uint64_t rest = request.piece.end() - begin;
  write_piece(context_, transfer_, {begin, rest}, request.io.memory.data());
}

void DriveShare::look(Clock::time_point now) {
  constexpr std::chrono::milliseconds interval{100};
  if (transfer_.drive_depth_max != nullptr && now >= next_look_) {
    depth_.bound(requests_per_depth(transfer_) *
                 std::min(transfer_.drive_depth_max(), DepthController::tried_max));
    next_look_ = now + interval;
  }
}

std::size_t direct_io_slots(const Transfer& transfer, std::size_t wanted) {
  const std::size_t channels = transfer.decision().choice().plan.buffered_channels;
  const std::size_t beside = channels * EngineShape::slots_per_channel;
  const std::size_t all = transfer.host_memory.bytes() / Pinbuffer::slot_bytes;
  return std::min(wanted, all > beside ? all - beside : 1);
}

std::uint64_t request_bytes(const Transfer& transfer, std::uint64_t usual, std::size_t slots) {
  const RoutingDecision& decision = transfer.decision();
  const std::uint64_t wanted =
      requests_per_depth(transfer) * std::uint64_t{decision.choice().plan.direct_io_depth};
  const std::uint64_t had =
      std::min<std::uint64_t>(slots, std::max(decision.channels_max, DepthController::depth_min));
  const std::uint64_t each = wanted * usual / std::max<std::uint64_t>(had, 1);
  return whole_steps(
      std::min(std::clamp<std::uint64_t>(each, usual, 2 * usual), transfer.piece_bytes_max),
      drive_alignment(transfer.file()));
}

// Pieces end where the drive's steps do, so that a part holds one of its size.
std::size_t request_room(const Transfer& transfer, std::uint64_t request_bytes) {
  if (drive_alignment(transfer.file()) != WorkMap::cut_bytes) {
    return Pinbuffer::slot_bytes;
  }
  const auto holds = [request_bytes](std::size_t part) { return request_bytes <= part; };
  return holds(Pinbuffer::quarter_bytes) ? Pinbuffer::quarter_bytes
         : holds(Pinbuffer::half_bytes)  ? Pinbuffer::half_bytes
                                         : Pinbuffer::slot_bytes;
}

DepthController make_depth_controller(const Transfer& transfer, std::uint32_t depth_max) {
  const RoutingDecision& decision = transfer.decision();
  // The plan is the share beside others. DriveShare keeps to it, as long as they are there.
  const bool shared = decision.load.others_on_drive.processes > 0;
  const bool writes = transfer.request().direction == Direction::recv;
  const bool writes_alone = writes && !shared && decision.load.drive_transfers == 0;
  const std::uint32_t wanted =
      requests_per_depth(transfer) *
      (shared ? decision.drive_depth : decision.choice().plan.direct_io_depth);
  depth_max = std::min(depth_max, std::max(decision.channels_max, DepthController::depth_min));
  return {
      writes_alone ? std::max(wanted, DirectQueue::writes_alone) : wanted,
      depth_max,
      decision.depth_measured ? DepthController::Start::measured : DepthController::Start::guessed};
}

}  // namespace hippogriff
