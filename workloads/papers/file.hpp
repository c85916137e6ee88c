// Files, and the format of the programs' inputs: one page of numbers, then arrays.
#pragma once

#include "workloads/sharing/options.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// An open descriptor, for who closes it.
struct OwnedDescriptor {
  int value;
};

// A descriptor that closes itself. Every function throws std::system_error with path and errno,
// or std::runtime_error when the file ends before the bytes do.
class File {
 public:
  File(std::string path, int flags);

  // Takes one that is open; the path is for messages.
  File(std::string path, OwnedDescriptor fd) noexcept : path_(std::move(path)), fd_(fd.value) {}

  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] int fd() const { return fd_; }

  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] std::uint64_t size_bytes() const;

  // Exactly so many bytes at an offset.
  void read(void* to, std::size_t size_bytes, std::uint64_t offset) const;
  void write(const void* from, std::size_t size_bytes, std::uint64_t offset) const;

  // Waits until the bytes are on the drive, which makes the programs' ways out comparable.
  void sync() const;

 private:
  std::string path_;
  int fd_;
};

// A file that is being made: it has no name until it is kept, or a random one in the same folder
// where the file system cannot do that, so that what a full drive took of it, or what was killed,
// is not taken for the whole. What was in its place is removed first, for its room. What is no
// regular file is written in place.
class NewFile {
 public:
  NewFile(const std::string& path, int access);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  [[nodiscard]] const File& file() const { return file_; }

  void keep();

 private:
  std::string place_;  // empty: the file's own, or it is there
  std::string name_;   // that it has until then; empty: none
  File file_;
};

// The numbers a problem is described by, each with its name and bounds.
class Numbers {
 public:
  explicit Numbers(std::vector<NumberOption> options) : options_(std::move(options)) {}

  // std::out_of_range for a name that is none.
  [[nodiscard]] std::uint64_t at(std::string_view name) const;

  // Throws std::invalid_argument for an unknown name or a value out of bounds.
  void set(std::string_view name, std::uint64_t value);

  [[nodiscard]] const std::vector<NumberOption>& options() const { return options_; }

 private:
  std::vector<NumberOption> options_;
};

// An array in a file.
struct Section {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

// What files a program reads. The first number is the size that `generate` is given.
struct Format {
  const char* program;
  std::vector<NumberOption> numbers;
  // Of each array, in their order. Throws std::invalid_argument for numbers that do not go
  // together.
  std::vector<std::uint64_t> (*array_bytes)(const Numbers&);
  // Null: files have a header. Else they are one array and nothing else, and this tells the first
  // number by their size; throws std::invalid_argument.
  std::uint64_t (*number_of_bytes)(std::uint64_t file_bytes) = nullptr;
};

// Where the arrays of a file lie: each begins on a page, and the file ends with the last.
std::vector<Section> sections_of(const Format& format, const Numbers& numbers);

// For files whose numbers are known at the end only.
void write_header(const File& file, const Format& format, const Numbers& numbers);

// A file to read. Opening it checks the header, all bounds, and that the file's size is exactly
// what its numbers say; throws std::runtime_error otherwise.
class Input {
 public:
  Input(const std::string& path, const Format& format);

  [[nodiscard]] const File& file() const { return file_; }

  [[nodiscard]] int fd() const { return file_.fd(); }

  [[nodiscard]] const Numbers& numbers() const { return numbers_; }

  [[nodiscard]] const Section& section(std::size_t index) const { return sections_.at(index); }

  // A whole array into host memory.
  void read(void* to, std::size_t section) const;

  // `count` elements of an array from `first` on.
  template <typename T>
  [[nodiscard]] std::vector<T> elements(std::size_t index,
                                        std::uint64_t first,
                                        std::size_t count) const {
    std::vector<T> values(count);
    const std::uint64_t offset = section(index).offset_bytes + first * sizeof(T);
    file_.read(values.data(), count * sizeof(T), offset);
    return values;
  }

 private:
  File file_;
  Numbers numbers_;
  std::vector<Section> sections_;
};

// A file to write, array by array. It is one, and stays, when it is finished.
class InputWriter {
 public:
  InputWriter(const std::string& path, Format format, Numbers numbers);

  [[nodiscard]] int fd() const { return file_.file().fd(); }

  // Of its place, for messages: there is nothing yet.
  [[nodiscard]] const std::string& path() const { return file_.file().path(); }

  // Writes array `index`, with make(i) as its element i; a few MiB are in memory at a time.
  template <typename T, typename Make>
  void fill(std::size_t index, const Make& make) const {
    static_assert(std::is_trivially_copyable_v<T>);
    constexpr std::uint64_t at_once = (std::uint64_t{1} << 20U) / sizeof(T);
    const Section section = sections_.at(index);
    const std::uint64_t count = section.size_bytes / sizeof(T);
    std::vector<T> values;
    for (std::uint64_t first = 0; first < count; first += at_once) {
      values.clear();
      for (std::uint64_t i = first; i < count && i < first + at_once; ++i) {
        values.push_back(make(i));
      }
      file_.file().write(
          values.data(), values.size() * sizeof(T), section.offset_bytes + first * sizeof(T));
    }
  }

  void finish();

 private:
  NewFile file_;
  Format format_;
  Numbers numbers_;
  std::vector<Section> sections_;
};

// Random numbers by place instead of order: the same on every machine.
class RandomField {
 public:
  explicit RandomField(std::uint64_t seed) : seed_(seed) {}

  [[nodiscard]] std::uint64_t seed() const { return seed_; }

  // 64 random bits of element `index` of `stream`.
  [[nodiscard]] std::uint64_t bits(std::uint64_t stream, std::uint64_t index) const;

  // In [0, 1), a multiple of 2^-24.
  [[nodiscard]] float unit(std::uint64_t stream, std::uint64_t index) const {
    return static_cast<float>(bits(stream, index) >> 40U) * 0x1p-24F;
  }

 private:
  std::uint64_t seed_;
};
