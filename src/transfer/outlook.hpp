// What the router is told about a file, an extent and a device: found out here, once per transfer.
#pragma once

#include "device/device.hpp"
#include "storage/storage.hpp"
#include "transfer/route.hpp"
#include "transfer/work_map.hpp"

#include <optional>
#include <string>

namespace hippogriff {

// Below, windows beside the channels are not worth their start.
inline constexpr std::uint64_t mix_bytes_min = std::uint64_t{256} << 20;

// Bytes of a file, from a multiple of them on, that are read as one: from the page cache when it
// has all their pages, else from the drive, which takes hardly longer for a grain than for a page.
inline constexpr std::uint64_t warmth_grain_bytes = std::uint64_t{64} << 10;
// Grains that the page cache has, but between others and no more than so many: from the drive, too.
inline constexpr std::uint64_t warmth_gap_bytes = std::uint64_t{128} << 10;

// `read_ahead_bytes`: of the extent's beginning, which are in memory of ours. Throws
// Error(io_error).
TransferFacts facts_of(Device& device,
                       File& file,
                       Range extent,
                       Direction direction,
                       std::uint64_t read_ahead_bytes = 0);

// Whether the page cache has all of a range. Throws Error(io_error).
bool is_cached(File& file, Range range);

// How much of an extent lies in grains that are read from the page cache, 0 to 1: looked at as a
// whole when small, else at 16 to 64 grains. 0 when it cannot be known.
double cached_fraction(File& file, Range extent);

// Splits blocks into warm and cold runs by asking the page cache, grain by grain where it is mixed.
// The file must outlive it.
WorkMap::Classifier make_classifier(File& file);

// Gives back what a read of the page cache left of its piece, because the first page of it was
// missing: that grain as cold, and what lies behind it as the page cache has it.
void give_back_unread(WorkMap& work, File& file, Range rest);

// The name a calibration keeps a file's drive under: the drive, else the file system.
std::string drive_key(const FileFacts& facts);

// The name it keeps a device's link under: that of the link, else the device's uuid.
std::string link_key(const DeviceInfo& info);

// "cuda:3" is 3, "cuda" is 0; nothing for other names.
std::optional<int> cuda_index(const std::string& name);

}  // namespace hippogriff
