// What an array stands on: a part of each of some files, or memory of this process.
#pragma once

#include "storage/storage.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hippogriff::ondemand {

inline constexpr std::size_t backing_files_max = 64;

class FileWindows;
class Overlay;

struct BackingFile {
  std::shared_ptr<File> file;
  std::string name;  // for messages: a path
  // What of it is moved past the page cache (choose_io): whole pages. The rest goes through it.
  Range direct;
  std::uint32_t direct_alignment = 0;
};

// A part of the array that lies together in one file.
struct FilePart {
  const BackingFile* file = nullptr;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t size_bytes = 0;
  bool is_direct = false;  // past the page cache
};

// How an array is laid out in files: round robin by stripes, or whole in each.
struct FileLayout {
  std::uint64_t file_count = 1;
  std::uint64_t stripe_bytes = 0;  // 0: every file is a copy of the array
  std::uint64_t file_offset = 0;   // of the array's first byte, in each file

  [[nodiscard]] std::uint64_t copies() const { return stripe_bytes == 0 ? file_count : 1; }

  // The bytes that an array takes of file `index`.
  [[nodiscard]] std::uint64_t bytes_in(std::uint64_t array_bytes, std::uint64_t index) const;

  // The number of the file with byte `offset` of the array, in the given copy.
  [[nodiscard]] std::uint64_t file_of(std::uint64_t offset, std::uint64_t copy) const;

  // Where that byte is in its file, and how many that follow lie behind it there.
  [[nodiscard]] std::uint64_t offset_in_file(std::uint64_t offset) const;
  [[nodiscard]] std::uint64_t together_from(std::uint64_t offset) const;
};

// Files of a new array that were not there before. They are removed again unless they are kept.
class MadeFiles {
 public:
  // The storage must stay as long as this has files.
  explicit MadeFiles(Storage& storage) : storage_(storage) {}

  ~MadeFiles();
  MadeFiles(const MadeFiles&) = delete;
  MadeFiles& operator=(const MadeFiles&) = delete;

  // Opens a file as it is, or makes it. Throws Error.
  std::shared_ptr<File> open_or_make(const std::string& path);

  void keep() { paths_.clear(); }

 private:
  Storage& storage_;
  std::vector<std::string> paths_;
};

// Either `files` or `memory`. The memory must stay as long as the array does.
struct Backing {
  std::vector<BackingFile> files;
  std::uint64_t stripe_bytes = 0;  // as FileLayout has them
  std::uint64_t file_offset = 0;
  std::span<std::byte> memory;
  // What of the one file its device's threads read in place; null: nothing, ever.
  std::shared_ptr<FileWindows> windows;
  std::uint64_t size_bytes = 0;
  bool writable = false;
  bool is_new = false;  // mode w+: its files have their bytes and size after empty_files
  std::shared_ptr<MadeFiles> made;
  std::shared_ptr<Overlay> overlay;  // where writes go instead; null: into files or memory
  std::string name;                  // for messages: a path
  bool is_direct = false;            // the files' whole pages are moved past the page cache,
  std::string io_reason;             // and why, or why not: a clause for people

  [[nodiscard]] bool in_memory() const { return files.empty(); }

  [[nodiscard]] FileLayout layout() const { return {files.size(), stripe_bytes, file_offset}; }

  // The part that begins at `offset` of the array, at most `bytes_max` long, in the given copy:
  // together, and of one kind.
  [[nodiscard]] FilePart part_at(std::uint64_t offset,
                                 std::uint64_t bytes_max,
                                 std::uint64_t copy) const;

  // fdatasync of every file, also of those behind one that fails. Throws the first failure. Does
  // nothing where there is an overlay.
  void sync() const;

  // Has the kernel begin to write a part of the array that was written, in every copy.
  void begin_write_back(Range part) const;

  // Has blocks for a part of a new array that is about to be written, in every copy, where there is
  // room for all that has none so far, `left_bytes` with the part. True when it has them; else the
  // write finds its own, or tells.
  bool allocate(Range part, std::uint64_t left_bytes) const;

 private:
  // Calls act(part of a file) for all of the array's part, in every copy.
  template <typename Act>
  void each_part(Range part, const Act& act) const;
};

// What somebody asks for. The strings are paths; sizes in bytes.
struct BackingRequest {
  std::vector<std::string> paths;
  std::string mode = "r";  // "r", "r+", "w+"; "c" opens the files for reading
  std::uint64_t file_offset = 0;
  std::uint64_t size_bytes = 0;    // 0: what the files hold
  std::uint64_t stripe_bytes = 0;  // as FileLayout has it
};

// The drive that all of its files are on, as transfers call it; "" where there are several, or
// none.
[[nodiscard]] std::string drive_of(const Backing& backing);

// "512 bytes", for messages.
[[nodiscard]] std::string counted_bytes(std::uint64_t count);

// "a.bin", or "a.bin and 3 more".
[[nodiscard]] std::string name_of(const std::vector<std::string>& paths);

// Opens the files and checks that each is as long as the array needs, and no longer where no size
// was given. w+, which wants a size, makes those that are not there, and leaves the others as they
// are until empty_files. Throws Error, which names the file.
[[nodiscard]] Backing open_backing(Storage& storage, const BackingRequest& request);

// Gives the files of a new array their size, in zeros, and keeps those that were made. Throws Error
// before a byte is lost where the file system has none as long.
void empty_files(const Backing& backing);

}  // namespace hippogriff::ondemand
