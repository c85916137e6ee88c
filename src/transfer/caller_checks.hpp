// What a caller asks of a file: where it is wrong, in the caller's words.
#pragma once

#include "storage/storage.hpp"
#include "transfer/runtime.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace hippogriff {

[[noreturn]] void throw_caller(const Submission& submission, std::string detail);

// "send" or "recv".
const char* verb(Direction direction);

// "5 bytes".
std::string bytes(std::uint64_t count);

// Where `size` bytes from the submission's offset on end. Throws Error(invalid_argument) where no
// file can reach that far.
std::uint64_t checked_end(const Submission& submission, std::uint64_t size);

// The file of a send, by its path or descriptor. Throws as Storage does.
std::shared_ptr<File> open_for_send(const Submission& submission, Storage& storage);

// The extent of a send. Throws Error(invalid_argument) where it is not inside the file.
Range send_extent(Submission submission, const File& file);

}  // namespace hippogriff
