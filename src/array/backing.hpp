// What an array stands on: a part of a file, or memory of this process.
#pragma once

#include "storage/storage.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace hippogriff::ondemand {

// Either `file` or `memory`. The memory must stay as long as the array does.
struct Backing {
  std::shared_ptr<File> file;
  std::uint64_t file_offset = 0;  // of the array's first byte
  std::span<std::byte> memory;
  // The array's bytes as a mapping of the file that its threads may read; may be empty.
  std::span<const std::byte> mapping;
  std::uint64_t size_bytes = 0;
  bool writable = false;
  std::string name;  // for messages: a path
};

}  // namespace hippogriff::ondemand
