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

// Throws Error(io_error).
TransferFacts facts_of(Device& device, File& file, Range extent, Direction direction);

// How much of an extent is in the page cache, 0 to 1: looked at as a whole when small, else at 64
// places. 0 when it cannot be known.
double cached_fraction(File& file, Range extent);

// Splits blocks into warm and cold runs by asking the page cache, finer where it is mixed.
// The file must outlive it.
WorkMap::Classifier make_classifier(File& file);

// The name a calibration keeps a file's drive under: the drive, else the file system.
std::string drive_key(const FileFacts& facts);

// "cuda:3" is 3, "cuda" is 0; nothing for other names.
std::optional<int> cuda_index(const std::string& name);

}  // namespace hippogriff
