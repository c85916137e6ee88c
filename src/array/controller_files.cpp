// Reads and writes of a controller's thread in files: copies, stripes, what comes in pieces.
#include "array/controller_thread.hpp"
#include "array/overlay.hpp"

#include <cerrno>

namespace hippogriff::ondemand {

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
    begin_file(pending);
  }
}

// Reads are spread over the copies by where they begin; writes go to one after the other.
void ControllerThread::begin_file(Pending& pending) {
  const Backing& backing = pending.served->array->backing();
  const bool reads = pending.opcode == Opcode::read;
  pending.in_overlay = false;
  pending.is_written = false;
  pending.copies_left = backing.layout().copies();
  pending.copy = reads ? pending.served->array->copy_for(pending.offset) : 0;
  begin_copy(pending);
}

void ControllerThread::begin_copy(Pending& pending) {
  pending.done = 0;
  pending.attempts = 0;
  if (pending.opcode == Opcode::read) {
    const FilePart part = rest_of(pending);
    try {
      if (!part.is_direct) {
        const auto count =
            part.file->file->read_cached(pending.memory.first(part.size_bytes), part.offset);
        pending.done = count.value_or(0);
        note_copied(pending);
      }
    } catch (...) {
      fail_copy(pending, current_failure());
      return;
    }
  }
  if (has_lost_its_end(pending)) {
    leave_copy_out(pending);
  } else if (pending.done == pending.wanted) {
    end_copy(pending);
  } else {
    continue_file(pending);
  }
}

// What is copied is registered before what nobody reads.
void ControllerThread::note_copied(const Pending& pending) {
  FileWindows* const windows = pending.served->array->backing().windows.get();
  if (windows != nullptr && !pending.in_overlay && pending.done != 0 &&
      windows->note_copied({pending.offset, pending.done})) {
    registrar_.wake();
  }
}

// Whether a write would make a copy as long again as the array, with a hole for what it has lost:
// nothing would tell it from a good one then.
bool ControllerThread::has_lost_its_end(const Pending& pending) {
  const Backing& backing = pending.served->array->backing();
  if (pending.opcode != Opcode::write || pending.in_overlay || backing.layout().copies() == 1) {
    return false;
  }
  try {
    return backing.files[pending.copy].file->size_now() < backing.file_offset + backing.size_bytes;
  } catch (...) {
    return false;  // the write will tell
  }
}

// The line is written where the other copies are; the array tells once that it was not to all.
void ControllerThread::leave_copy_out(Pending& pending) {
  const FilePart part = rest_of(pending);
  const Failure failure{
      .status = Status::short_file,
      .operation = "write array",
      .object = part.file->name,
      .offset = part.offset,
      .detail = "the file has become shorter than the array: it is left out, and no copy any more"};
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
  const std::uint64_t left = pending.wanted - pending.done;
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
  request.memory = pending.memory.subspan(pending.done, part.size_bytes);
  request.tag = reinterpret_cast<std::uint64_t>(&pending);
  try {
    io_->submit(request);
    note_submitted(pending);
  } catch (...) {
    answer_failure(pending, NvmeStatus::internal_error, current_failure());
  }
}

void ControllerThread::advance(Pending& pending, std::int64_t result) {
  constexpr int attempts_max = 100;
  const FilePart part = rest_of(pending);
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
    if (pending.done < pending.wanted) {
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
  answer_failure(
      pending,
      pending.opcode == Opcode::read ? NvmeStatus::unrecovered_read : NvmeStatus::write_fault,
      failure);
}

}  // namespace hippogriff::ondemand
