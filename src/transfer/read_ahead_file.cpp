// Copies of what has been read; the rest is asked of the file.
#include "transfer/read_ahead_file.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hippogriff {

ReadAheadFile::ReadAheadFile(std::shared_ptr<File> file,
                             Range range,
                             std::shared_ptr<const std::byte> memory) noexcept
    : file_(std::move(file)), range_(range), memory_(std::move(memory)) {}

void ReadAheadFile::forget() noexcept {
  range_ = {};
  memory_ = nullptr;
}

std::size_t ReadAheadFile::read(std::span<std::byte> to, std::uint64_t offset) {
  if (!holds(offset)) {
    return file_->read(to, offset);
  }
  const std::size_t size = std::min<std::uint64_t>(to.size(), range_.end() - offset);
  std::memcpy(to.data(), memory_.get() + (offset - range_.offset), size);
  return size;
}

std::optional<std::size_t> ReadAheadFile::read_cached_pieces(std::span<const iovec> to,
                                                             std::uint64_t offset,
                                                             PageCache expected) {
  if (!holds(offset)) {
    return file_->read_cached_pieces(to, offset, expected);
  }
  std::size_t moved = 0;
  for (const iovec& piece : to) {
    const std::size_t size =
        std::min<std::uint64_t>(piece.iov_len, range_.end() - (offset + moved));
    std::memcpy(piece.iov_base, memory_.get() + (offset + moved - range_.offset), size);
    moved += size;
    if (size < piece.iov_len) {
      break;
    }
  }
  return moved;
}

std::optional<Residency> ReadAheadFile::residency(Range range) {
  const std::uint64_t begin = std::clamp(range_.offset, range.offset, range.end());
  const std::uint64_t end = std::clamp(range_.end(), begin, range.end());
  if (begin == end) {
    return file_->residency(range);
  }
  Residency sum{.resident_bytes = end - begin, .total_bytes = end - begin};
  for (const Range part :
       {Range{range.offset, begin - range.offset}, Range{end, range.end() - end}}) {
    if (part.empty()) {
      continue;
    }
    const auto asked = file_->residency(part);
    sum.resident_bytes += asked ? asked->resident_bytes : 0;
    sum.total_bytes += asked ? asked->total_bytes : part.size;
    sum.exact = sum.exact && asked && asked->exact;
  }
  return sum;
}

}  // namespace hippogriff
