// What tests of storages share: factories, patterned bytes, aligned memory, whole reads.
#pragma once

#include "storage/storage.hpp"
#include "testing/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace hippogriff {

// One storage on one file system.
struct StorageFactory {
  std::string name;
  std::function<std::shared_ptr<Storage>()> make;  // null: the tests are skipped
  std::string folder;                              // where files go, e.g. "." or "/dev/shm"

  friend std::ostream& operator<<(std::ostream& out, const StorageFactory& factory) {
    return out << factory.name;
  }
};

// The byte at an offset of every test file: no period that a block or a page has.
inline std::byte pattern_at(std::uint64_t offset) {
  return static_cast<std::byte>((offset * 2654435761U) >> 13U);
}

inline std::vector<std::byte> pattern(std::uint64_t offset, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = pattern_at(offset + i);
  }
  return bytes;
}

// Aligned for O_DIRECT everywhere.
class AlignedMemory {
 public:
  explicit AlignedMemory(std::size_t size) : size_(size) {
    const std::size_t room = (size + alignment - 1) / alignment * alignment;
    memory_.reset(
        static_cast<std::byte*>(std::aligned_alloc(alignment, std::max(room, alignment))));
    if (memory_ == nullptr) {
      throw std::bad_alloc();
    }
    std::memset(memory_.get(), 0xEE, size);
  }

  [[nodiscard]] std::span<std::byte> bytes() const { return {memory_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  static constexpr std::size_t alignment = 4096;
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_;
};

// Whether the bytes are the pattern from `offset` on; on failure, where not.
inline ::testing::AssertionResult is_pattern(std::span<const std::byte> bytes,
                                             std::uint64_t offset) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern_at(offset + i)) {
      return ::testing::AssertionFailure() << "byte " << i << " of " << bytes.size() << " differs";
    }
  }
  return ::testing::AssertionSuccess();
}

inline void write_all(File& file, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const std::size_t count = file.write(bytes, offset);
    ASSERT_GT(count, 0U);
    bytes = bytes.subspan(count);
    offset += count;
  }
}

// Reads until the span is full or the file ends. Returns the bytes read.
inline std::size_t read_all(File& file, std::span<std::byte> to, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < to.size()) {
    const std::size_t count = file.read(to.subspan(done), offset + done);
    if (count == 0) {
      break;
    }
    done += count;
  }
  return done;
}

// Reaps one completion within ten seconds; tag UINT64_MAX says that none came.
inline IoCompletion reap_one(IoQueue& queue) {
  IoCompletion completion{UINT64_MAX, 0};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < end) {
    if (queue.reap({&completion, 1}, std::chrono::seconds(1)) == 1) {
      break;
    }
  }
  return completion;
}

// The failure that a call throws; status ok when it throws none.
inline Failure failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.failure();
  }
  return {};
}

}  // namespace hippogriff
