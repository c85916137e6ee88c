// Several pieces of memory that stand for one, as readv has them.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace hippogriff {

inline std::size_t size_of(std::span<const iovec> pieces) {
  std::size_t size = 0;
  for (const iovec& piece : pieces) {
    size += piece.iov_len;
  }
  return size;
}

// `size_bytes` of them from `begin` on, as far as they go.
inline std::vector<iovec> part_of(std::span<const iovec> pieces,
                                  std::size_t begin,
                                  std::size_t size_bytes) {
  std::vector<iovec> part;
  for (const iovec& piece : pieces) {
    if (begin >= piece.iov_len) {
      begin -= piece.iov_len;
      continue;
    }
    const std::size_t size = std::min(piece.iov_len - begin, size_bytes);
    if (size == 0) {
      break;
    }
    part.push_back({static_cast<std::byte*>(piece.iov_base) + begin, size});
    begin = 0;
    size_bytes -= size;
  }
  return part;
}

}  // namespace hippogriff
