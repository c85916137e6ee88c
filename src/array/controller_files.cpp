// Reads and writes of a controller's thread in files: copies, stripes, what comes in pieces.
#include "array/controller_thread.hpp"
#include "array/overlay.hpp"

#include <cerrno>
#include <span>
#include <utility>
#include <vector>

namespace hippogriff::ondemand {

namespace {

// A warp's lines of 4 KiB, and more: what a drive does not move faster in larger pieces.
constexpr std::size_t together_bytes_max = std::size_t{512} << 10;

// Behind a cold block that is read as a whole, where reads go through the file in order. A GPU is
// at some blocks at once, and a drive that has no more than these to do waits for it; 8 and 32 MiB
// were no better (cold graphs of 0.5 GB beside an H200).
constexpr std::uint64_t ahead_bytes = std::uint64_t{2} << 20;

}  // namespace

// Lines that were written are in the overlay, and so is what is written: whole lines only, for a
// line is there or in the files.
void ControllerThread::begin_overlay(Pending& pending) {
  const Backing& backing = pending.served->array->backing();
  const Range range{pending.offset, pending.wanted};
  const auto line = backing.overlay->line_with(range);
  const bool writes = pending.opcode == Opcode::write;
  if (!line || (writes && !backing.overlay->is_line(range))) {
    refuse(pending, NvmeStatus::invalid_field, "the blocks are not those of a line");
  } else if (writes || backing.overlay->has(*line)) {
    pending.in_overlay = true;
    pending.copies_left = 1;
    begin_copy(pending);
  } else if (backing.in_memory()) {
    begin_memory(pending);
  } else {
    gather(pending);
  }
}

void ControllerThread::gather(Pending& pending) {
  Served& served = *pending.served;
  (pending.opcode == Opcode::write ? served.writes : served.reads).later.push_back(&pending);
}

// Threads that walk through an array send commands for lines that lie behind each other into the
// same queue: those are one request of the drive, one lock of the file, one call. False when none
// began.
bool ControllerThread::begin_gathered(Gathered& gathered) {
  if (gathered.now.empty()) {
    gathered.now.swap(gathered.later);
    std::ranges::sort(gathered.now, {}, &Pending::offset);
  }
  std::span<Pending*> left(gathered.now);
  while (!left.empty() && has_room(*left.front())) {
    Pending& first = *left.front();
    left = join(left);
    has_more_ = !left.empty();
    begin_file(first);
  }
  const auto begun = gathered.now.size() - left.size();
  gathered.now.erase(gathered.now.begin(),
                     gathered.now.begin() + static_cast<std::ptrdiff_t>(begun));
  has_more_ = false;
  copy_batch();
  return begun != 0;
}

// Has the first move the bytes of those behind it; returns what is left.
std::span<ControllerThread::Pending*> ControllerThread::join(std::span<Pending*> gathered) {
  Pending& first = *gathered.front();
  Pending* last = &first;
  for (gathered = gathered.subspan(1); !gathered.empty() && joins(first, *last, *gathered.front());
       gathered = gathered.subspan(1)) {
    last->next = gathered.front();
    last = last->next;
    first.together += last->wanted;
  }
  return gathered;
}

bool ControllerThread::joins(const Pending& first, const Pending& last, const Pending& next) {
  const std::size_t bytes = first.together + next.wanted;
  return !first.is_alone && !next.is_alone && next.offset == last.offset + last.memory.size() &&
         bytes <= together_bytes_max &&
         first.served->array->backing().part_at(first.offset, bytes, 0).size_bytes == bytes;
}

// Has each of the commands that were moved together begin by itself, when there is room: each has
// an answer of its own then. False when it is one alone.
bool ControllerThread::split(Pending& first) {
  if (first.next == nullptr) {
    return false;
  }
  for (Pending* each = &first; each != nullptr;) {
    Pending& its = *std::exchange(each, each->next);
    its.next = nullptr;
    its.together = its.wanted;
    its.is_alone = true;
    gather(its);
  }
  return true;
}

// The memory of what is to be moved next.
void ControllerThread::use_pieces(const Pending& pending,
                                  std::uint64_t size_bytes,
                                  std::vector<iovec>& pieces) {
  pieces.clear();
  std::uint64_t before = pending.done;
  for (const Pending* each = &pending; each != nullptr && size_bytes != 0; each = each->next) {
    const std::uint64_t begin = std::min<std::uint64_t>(before, each->wanted);
    const std::uint64_t size = std::min<std::uint64_t>(each->wanted - begin, size_bytes);
    if (size != 0) {
      pieces.push_back({each->memory.data() + begin, size});
    }
    before -= begin;
    size_bytes -= size;
  }
}

// Reads are spread over the copies by where they begin; writes go to one after the other.
void ControllerThread::begin_file(Pending& pending) {
  const Backing& backing = pending.served->array->backing();
  const bool reads = pending.opcode == Opcode::read;
  if (!reads && backing.is_new && backing.is_direct) {
    pending.served->array->note_first_write({pending.offset, pending.together});
  }
  pending.in_overlay = false;
  pending.is_written = false;
  pending.copies_left = backing.layout().copies();
  pending.copy = reads ? pending.served->array->copy_for(pending.offset) : 0;
  begin_copy(pending);
}

void ControllerThread::begin_copy(Pending& pending) {
  pending.done = 0;
  pending.attempts = 0;
  const FilePart part = rest_of(pending);
  if (pending.opcode != Opcode::read || part.is_direct) {
    go_on(pending);
    return;
  }
  const FoundCached& found = pending.served->array->found_cached();
  CopyJob& job = pending.job;
  job.file = part.file->file.get();
  job.offset = part.offset;
  job.expected = !pending.in_overlay && found.is_likely(pending.offset) ? File::PageCache::probable
                                                                        : File::PageCache::unknown;
  use_pieces(pending, part.size_bytes, job.pieces);
  job.size_bytes = part.size_bytes;
  job.tag = reinterpret_cast<std::uint64_t>(&pending);
  job.finished = &finished_copies_;
  if (!has_more_ || !crew_.works() || !found.did_lately(pending.offset)) {
    copy(pending);
    return;
  }
  batch_.push_back(&pending);
  batch_bytes_ += job.size_bytes;
  if (crew_.wants(batch_.size(), batch_bytes_)) {
    give_batch();
  }
}

void ControllerThread::copy(Pending& pending) {
  const CopyJob& job = pending.job;
  try {
    note_copied(pending, job.file->read_cached_pieces(job.pieces, job.offset, job.expected));
  } catch (...) {
    fail_copy(pending, current_failure());
    return;
  }
  go_on(pending);
}

void ControllerThread::give_batch() {
  CopyJob* with = nullptr;
  for (Pending* const each : batch_) {
    each->job.with = std::exchange(with, &each->job);
  }
  if (crew_.try_give(*with)) {
    copied_by_crew_ += batch_.size();
    batch_.clear();
    batch_bytes_ = 0;
  } else {
    copy_batch();
  }
}

// Who has few commands has them answered sooner by copying itself than by waking others.
void ControllerThread::copy_batch() {
  while (!batch_.empty()) {  // a copy that fails may add another
    Pending& pending = *batch_.back();
    batch_.pop_back();
    batch_bytes_ -= pending.job.size_bytes;
    copy(pending);
  }
}

// False when there are none.
bool ControllerThread::finish_copies() {
  CopyJob* job = finished_copies_.take_all();
  const bool some = job != nullptr;
  for (const CopyJob* each = job; each != nullptr; each = each->next) {
    --copied_by_crew_;  // also of those that an exception keeps us from
  }
  while (job != nullptr) {
    const CopyJob& its = *std::exchange(job, job->next);  // which may be given again
    Pending& pending = *reinterpret_cast<Pending*>(its.tag);
    if (its.failure.status != Status::ok) {
      fail_copy(pending, Failure(its.failure));
    } else {
      note_copied(pending, its.count);
      go_on(pending);
    }
  }
  return some;
}

// Goes on behind what was copied, if anything was to be.
void ControllerThread::go_on(Pending& pending) {
  if (has_lost_its_end(pending)) {
    leave_copy_out(pending);
  } else if (pending.done == pending.together) {
    end_copy(pending);
  } else {
    read_around(pending);
    continue_file(pending);
  }
}

// What lies around is on its way to the page cache then, and who wants it waits for that.
void ControllerThread::read_around(const Pending& pending) {
  const std::shared_ptr<ServedArray>& array = pending.served->array;
  if (pending.opcode != Opcode::read || pending.in_overlay || array->backing().is_direct) {
    return;
  }
  const FilePart part = rest_of(pending);
  if (const auto block = array->note_cold(part)) {
    hint({array, part.file, *block});
    array->take_ahead(
        part, *block, ahead_bytes, [&](const Range& run) { hint({array, part.file, run}); });
  }
  const SharedDrive* const drive =
      pending.served->drive != nullptr ? pending.served->drive->shared : nullptr;
  if ((drive == nullptr || !drive->has_others()) && array->begin_rest(part)) {
    hint({array, part.file, {}, RestReads{.drive = drive}});
  }
}

// What is copied may be worth registering.
void ControllerThread::note_copied(Pending& pending, std::optional<std::size_t> count) {
  pending.done = count.value_or(0);
  if (pending.in_overlay) {
    return;
  }
  ServedArray& array = *pending.served->array;
  array.found_cached().note(pending.offset, pending.done == pending.job.size_bytes);
  FileWindows* const windows = array.backing().windows.get();
  if (windows != nullptr && pending.done != 0 &&
      windows->note_copied({pending.offset, pending.done})) {
    registrar_.wake();
  }
}

// Whether a write would make a file as long again as the array has it, with a hole for what it has
// lost: nothing would tell it from a good one then.
bool ControllerThread::has_lost_its_end(const Pending& pending) {
  const Backing& backing = pending.served->array->backing();
  if (pending.opcode != Opcode::write || pending.in_overlay) {
    return false;
  }
  try {
    for (std::uint64_t at = pending.offset + pending.done;
         at < pending.offset + pending.together;) {
      const std::uint64_t index = backing.layout().file_of(at, pending.copy);
      if (backing.files[index].file->size_now() <
          backing.file_offset + backing.layout().bytes_in(backing.size_bytes, index)) {
        return true;
      }
      at += backing.part_at(at, pending.offset + pending.together - at, pending.copy).size_bytes;
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the write will tell
  }
  return false;
}

// The line is written where the other copies are; the array tells once that it was not to all.
void ControllerThread::leave_copy_out(Pending& pending) {
  const FilePart part = rest_of(pending);
  const bool has_others = pending.served->array->backing().layout().copies() > 1;
  const Failure failure{.status = Status::short_file,
                        .operation = "write array",
                        .object = part.file->name,
                        .offset = part.offset,
                        .detail = std::string("the file has become shorter than the array") +
                                  (has_others ? ": it is left out, and no copy any more" : "")};
  if (pending.copies_left == 1 && !pending.is_written) {
    fail_copy(pending, failure);
  } else {
    pending.served->array->note_left_out(pending.copy, failure);
    end_copy(pending);
  }
}

// What is still to be moved, as far as it lies together.
FilePart ControllerThread::rest_of(const Pending& pending) {
  const Backing& backing = pending.served->array->backing();
  const std::uint64_t offset = pending.offset + pending.done;
  const std::uint64_t left = pending.together - pending.done;
  return pending.in_overlay ? FilePart{&backing.overlay->file(), offset, left, false}
                            : backing.part_at(offset, left, pending.copy);
}

void ControllerThread::continue_file(Pending& pending) {
  const FilePart part = rest_of(pending);
  IoRequest request;
  request.kind = pending.opcode == Opcode::read ? IoRequest::Kind::read : IoRequest::Kind::write;
  request.file = part.file->file.get();
  request.direct = part.is_direct;
  request.offset = part.offset;
  use_pieces(pending, part.size_bytes, pieces_);
  if (pieces_.size() == 1) {
    request.memory = {static_cast<std::byte*>(pieces_[0].iov_base), pieces_[0].iov_len};
  } else {
    request.pieces = pieces_;
  }
  request.tag = reinterpret_cast<std::uint64_t>(&pending);
  try {
    io_->prepare(request);
    pending.locks_file = pending.opcode == Opcode::write && !part.is_direct;
    note_submitted(pending);
  } catch (...) {
    if (!split(pending)) {
      answer_failure(pending, NvmeStatus::internal_error, current_failure());
    }
  }
}

// What is to be moved next, by this thread; a completion's result.
std::int64_t ControllerThread::move_here(const Pending& pending, const FilePart& part) {
  std::int64_t moved = 0;
  use_pieces(pending, part.size_bytes, pieces_);
  for (const iovec& piece : pieces_) {
    const std::span memory(static_cast<std::byte*>(piece.iov_base), piece.iov_len);
    const std::uint64_t offset = part.offset + static_cast<std::uint64_t>(moved);
    try {
      const std::size_t count = pending.opcode == Opcode::read
                                    ? part.file->file->read(memory, offset)
                                    : part.file->file->write(memory, offset);
      moved += static_cast<std::int64_t>(count);
      if (count != memory.size()) {
        break;
      }
    } catch (const Error& error) {
      return moved != 0 ? moved : -std::int64_t{error.failure().errno_value};
    }
  }
  return moved;
}

void ControllerThread::advance(Pending& pending, std::int64_t result) {
  constexpr int attempts_max = 100;
  const FilePart part = rest_of(pending);
  if (result == -ECANCELED) {  // the kernel may have no more workers (ulimit -u)
    result = move_here(pending, part);
  }
  if (part.is_direct && result > 0) {
    // What comes next must be aligned as well.
    result = static_cast<std::int64_t>(
        align_down(static_cast<std::uint64_t>(result), part.file->direct_alignment));
  }
  const bool again = result == -EAGAIN || result == -EINTR;
  if (again && ++pending.attempts < attempts_max) {
    continue_file(pending);
    return;
  }
  if (result > 0) {
    pending.done += static_cast<std::size_t>(result);
    if (pending.done < pending.together) {
      continue_file(pending);
    } else {
      pending.is_written = pending.opcode == Opcode::write;
      end_copy(pending);
    }
    return;
  }
  const bool reads = pending.opcode == Opcode::read;
  Failure failure;
  failure.status = result == 0 && reads ? Status::short_file : Status::io_error;
  failure.operation = reads ? "read array" : "write array";
  failure.object = part.file->name;
  failure.offset = part.offset;
  failure.errno_value = result == 0 ? (reads ? 0 : EIO) : static_cast<int>(-result);
  if (result == 0 && reads) {
    failure.detail = "the file has become shorter than the array";
  } else if (pending.in_overlay) {
    failure.detail = "TMPDIR, or the array's overlay option, names another folder for changes";
  }
  fail_copy(pending, failure);
}

void ControllerThread::end_copy(Pending& pending) {
  if (pending.opcode == Opcode::write && --pending.copies_left != 0) {
    ++pending.copy;
    begin_copy(pending);
    return;
  }
  if (pending.in_overlay && pending.opcode == Opcode::write) {
    Overlay& overlay = *pending.served->array->backing().overlay;
    overlay.note(*overlay.line_with({pending.offset, pending.wanted}));
  } else if (pending.opcode == Opcode::write && !pending.served->array->backing().is_direct) {
    if (const auto part = pending.served->array->note_written({pending.offset, pending.together})) {
      hint({pending.served->array, nullptr, *part});
    }
  }
  answer(pending);
}

// A read goes on with the next copy. A write does not: its line stays dirty in the cache, which
// keeps whoever reads from the copies that differ now.
void ControllerThread::fail_copy(Pending& pending, const Failure& failure) {
  ServedArray& array = *pending.served->array;
  const std::uint64_t failed = pending.copy;
  while (pending.opcode == Opcode::read && --pending.copies_left != 0) {
    pending.copy = (pending.copy + 1) % array.backing().layout().copies();
    if (!array.is_outdated(pending.copy)) {
      array.note_other_copy(failed, failure);
      begin_copy(pending);
      return;
    }
  }
  if (split(pending)) {
    return;
  }
  answer_failure(
      pending,
      pending.opcode == Opcode::read ? NvmeStatus::unrecovered_read : NvmeStatus::write_fault,
      failure);
}

}  // namespace hippogriff::ondemand
