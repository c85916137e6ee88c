// What an array tells of accesses that failed, and why it has ended.
#include "array/storage_array.hpp"

#include <string>

namespace hippogriff::ondemand {

namespace {

// For whoever mends it: everything that is known.
std::string said_of(const WrongAnswer& wrong, std::uint32_t depth) {
  return "a completion came for a command that was not under way: the " +
         std::to_string(wrong.position) + "th of its queue, for slot " +
         std::to_string(unpack(wrong.word).command) + " of " + std::to_string(depth) +
         ", whose turn is " + std::to_string(wrong.turn) + "; the controller was told of " +
         std::to_string(wrong.tail) + " commands; please report this";
}

}  // namespace

void StorageArray::throw_kept(std::uint32_t place) const {
  std::uint64_t line = 0;
  static_cast<void>(cache_.places.is_dirty(place, line));
  throw Error({.status = Status::timed_out,
               .operation = "flush array",
               .object = options_.backing.name,
               .detail = "a cursor or a thread keeps line " + std::to_string(line) + " (bytes " +
                         std::to_string(line * options_.line_bytes) +
                         " and on): when it has let go, flush again"});
}

void StorageArray::check() const {
  const std::uint32_t sticky = system_ref<std::uint32_t>(*cache_.sticky).load(relaxed);
  if (sticky != 0) {
    throw_status(static_cast<NvmeStatus>(sticky), "access array");
  }
}

void StorageArray::clear_failure() {
  if (served_->options().patience.ended() != Ending::none) {
    throw_status(NvmeStatus::aborted, "clear the failure of array");
  }
  served_->clear_failure();
  if (const auto failure = served_->sync_failure()) {
    throw Error(*failure);
  }
}

void StorageArray::throw_failed(NvmeStatus status,
                                const std::function<bool(const Range&)>& is_its) const {
  if (status == NvmeStatus::unrecovered_read || status == NvmeStatus::write_fault) {
    if (const auto failure = served_->recent_failure(is_its)) {
      throw Error(*failure);
    }
    // Somebody has cleared it meanwhile; the bytes are not there all the same.
    throw Error({.status = Status::io_error,
                 .operation = "access array",
                 .object = options_.backing.name,
                 .detail = "the failure was cleared before it was told"});
  }
  throw_status(status, "access array");
}

void StorageArray::throw_status(NvmeStatus status, const char* operation) const {
  const Ending ending = served_->options().patience.ended();
  const bool ended_alone =
      status == NvmeStatus::aborted && (ending == Ending::stopped || ending == Ending::timed_out);
  const bool kept = status == NvmeStatus::interrupted;
  if (const auto failure = served_->first_failure(); failure && !ended_alone && !kept) {
    throw Error(*failure);
  }
  Failure failure{
      .status = Status::io_error, .operation = operation, .object = options_.backing.name};
  if (status == NvmeStatus::out_of_range) {
    failure.status = Status::invalid_argument;
    failure.detail = "an index is beyond the array's end";
  } else if (status == NvmeStatus::access_denied) {
    failure.status = Status::invalid_argument;
    failure.detail = "the array was opened for reading";
  } else if (kept) {
    failure.status = Status::timed_out;
    failure.detail = "a cursor or a thread keeps a line that a flush was to write";
  }
  switch (ending) {
    case Ending::none:
      break;
    case Ending::stopped:
      failure.status = Status::cancelled;
      failure.detail = "the array was closed";
      break;
    case Ending::timed_out:
      failure.status = Status::timed_out;
      failure.detail =
          "a thread waited longer than the array allows, which has ended it: open it again";
      break;
    case Ending::controller_died:
      failure.status = Status::internal;
      failure.detail = "the array's controller failed";
      break;
    case Ending::broken:
      failure.status = Status::internal;
      failure.detail = said_of(served_->options().patience.words->wrong, options_.queue_depth);
      break;
  }
  throw Error(failure);
}

}  // namespace hippogriff::ondemand
