// A stream and the lock around it.
#include "transfer/copy_stream.hpp"

namespace hippogriff {

Stream& CopyStream::made() {
  if (stream_ == nullptr) {
    stream_ = device_.create_stream();
  }
  return *stream_;
}

void CopyStream::copy_to_device(const Transfer& transfer,
                                Range piece,
                                const std::byte* from,
                                Event& copied) {
  const std::lock_guard lock(mutex_);
  Stream& stream = made();
  transfer.for_each_part(piece, [&](const Segment& part) {
    stream.copy_to_device(part.address, from + (part.range.offset - piece.offset), part.range.size);
  });
  stream.record(copied);
}

void CopyStream::copy_to_host(std::byte* to,
                              DeviceAddress from,
                              std::size_t size_bytes,
                              Event& copied) {
  const std::lock_guard lock(mutex_);
  made().copy_to_host(to, from, size_bytes);
  stream_->record(copied);
}

bool CopyStream::drain() noexcept {
  const std::lock_guard lock(mutex_);
  return stream_ == nullptr || hippogriff::drain(*stream_);
}

void CopyStream::forget_failures() noexcept {
  const std::lock_guard lock(mutex_);
  for (int failures = 0; stream_ != nullptr && failures < failures_max; ++failures) {
    try {
      static_cast<void>(stream_->idle());
      return;
    } catch (...) {
      continue;
    }
  }
}

}  // namespace hippogriff
