// Replaces a file as a whole: readers see the old content or the new, also after a crash.
#pragma once

#include "storage/storage.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace hippogriff {

enum class TemporaryKind : std::uint8_t {
  automatic,  // without a name where the file system can (nothing is left by a crash), else named
  named,      // ".<name>.hippogriff-<pid>-<random>" in the target's folder
};

// A new file that takes the target's place at commit, and vanishes without. A symbolic link is
// followed, not replaced. Of a file that it replaces it keeps mode and, where allowed, owner, as
// they are at commit; hard links, ACLs and extended attributes stay with the old one. One thread at
// a time.
class AtomicFile {
 public:
  // Throws Error: io_error (also EACCES when the target may not be written), invalid_argument when
  // the target exists and is not a regular file.
  AtomicFile(std::shared_ptr<Storage> storage,
             const std::string& path,
             TemporaryKind kind = TemporaryKind::automatic);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  AtomicFile(AtomicFile&&) = delete;
  AtomicFile& operator=(AtomicFile&&) = delete;

  // Open for reading and writing, empty at first. Called by the target's path in messages.
  [[nodiscard]] const std::shared_ptr<File>& file() const { return file_; }

  // The path that commit replaces: the end of the links.
  [[nodiscard]] const std::string& target() const { return target_; }

  // Syncs the file, renames it, syncs the folder. Once. Throws Error(io_error); when only the
  // folder's sync failed, the target is replaced already.
  void commit();
  // Removes the new file's name, as destruction does. Without effect after commit.
  void discard() noexcept;

 private:
  void link_unnamed();

  std::shared_ptr<Storage> storage_;
  std::string target_;
  std::string temporary_;  // "" while it has no name
  std::shared_ptr<File> file_;
  bool committed_ = false;
};

}  // namespace hippogriff
