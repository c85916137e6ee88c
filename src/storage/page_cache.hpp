// How much of a file is in the page cache, asked in three ways.
#pragma once

#include "base/range.hpp"
#include "storage/storage.hpp"

#include <cstdint>
#include <optional>
#include <span>

namespace hippogriff {

// Ranges up to this size are counted page by page; of larger ones, windows spread over them.
inline constexpr std::uint64_t residency_exact_bytes_max = std::uint64_t{4} << 20;

// Each answers for a non-empty range inside the file, or nothing when its way does not work or
// would not tell the truth. Dirty pages count. Thread-safe; costs in the README.
std::optional<std::uint64_t> resident_bytes_by_cachestat(int fd, Range range);
// Only where the kernel lets this process know: its own file, or one that it may write.
std::optional<std::uint64_t> resident_bytes_by_mincore(int fd, Range range);
// By reads of one byte that do not wait. A miss makes the kernel read that page, so few are asked.
std::optional<std::uint64_t> resident_bytes_by_probing(int fd, Range range);

// The first of the three that answers. `range` lies inside the file.
std::optional<Residency> page_cache_residency(int fd, Range range);

// How many bytes from the start of a non-empty range are in the page cache without a gap. By
// cachestat alone; nothing where there is none.
std::optional<std::uint64_t> resident_prefix_bytes(int fd, Range range);

// preadv2 with RWF_NOWAIT. Returns a count, or -errno; -EOPNOTSUPP where it does not exist.
std::int64_t read_without_waiting(int fd, std::span<const iovec> to, std::uint64_t offset);

}  // namespace hippogriff
