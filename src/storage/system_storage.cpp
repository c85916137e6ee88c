// Storage over the machine's own file systems: opens, checks, names, and makes queues.
#include "base/own_descriptor.hpp"
#include "storage/descriptor.hpp"
#include "storage/file_probe.hpp"
#include "storage/folder.hpp"
#include "storage/queue_request.hpp"
#include "storage/storage.hpp"
#include "storage/system_file.hpp"
#include "storage/thread_queue.hpp"
#include "storage/uring_queue.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>

namespace hippogriff {
namespace {

const char* access_word(FileAccess access) {
  switch (access) {
    case FileAccess::read:
      return "reading";
    case FileAccess::write:
      return "writing";
    case FileAccess::read_write:
      break;
  }
  return "reading and writing";
}

void check_path(const std::string& path, const char* operation) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    throw_invalid(operation, path, path.empty() ? "the path is empty" : "the path has a NUL in it");
  }
}

// What cannot be opened because of what it is gets the same words as what can.
[[noreturn]] void open_failed(const std::string& path, const char* operation, int errno_value) {
  struct stat status{};
  if (errno_value == EISDIR) {
    throw_invalid(operation, path, "it is a directory, not a file or block device");
  }
  if (errno_value == ENXIO && ::stat(path.c_str(), &status) == 0) {
    if (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)) {
      throw_invalid(operation, path, "it is a pipe or socket, not a file or block device");
    }
  }
  throw_io(operation, path, no_offset, errno_value);
}

int checked_flags(int fd, FileAccess access) {
  const std::string name = std::to_string(fd);
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) {
    throw_invalid("use descriptor", name, "it is not open");
  }
  if (!flags_allow(flags, access)) {
    throw_invalid("use descriptor", name, std::string("it is not open for ") + access_word(access));
  }
  if (access != FileAccess::read && (flags & O_APPEND) != 0) {
    throw_invalid("use descriptor",
                  name,
                  "it was opened with O_APPEND: Linux would write at the end of the file, "
                  "wherever it was asked to");
  }
  return flags;
}

class SystemStorage final : public Storage {
 public:
  explicit SystemStorage(QueueKind kind) : kind_(kind) {}

  [[nodiscard]] std::shared_ptr<File> open(const std::string& path, FileAccess access) override {
    return open_path("open", path, access, 0);
  }

  [[nodiscard]] std::shared_ptr<File> create(const std::string& path) override {
    return open_path("create", path, FileAccess::read_write, O_CREAT | O_TRUNC);
  }

  [[nodiscard]] std::shared_ptr<File> adopt(int fd, FileAccess access) override {
    return take(fd, access, Ownership::duplicate, "");
  }

  [[nodiscard]] std::shared_ptr<File> borrow(int fd, FileAccess access) override {
    return take(fd, access, Ownership::borrow, "");
  }

  [[nodiscard]] std::shared_ptr<File> adopt_as(int fd,
                                               FileAccess access,
                                               const std::string& path) override {
    return take(fd, access, Ownership::duplicate, path);
  }

  void rename(const std::string& from, const std::string& to) override;

  [[nodiscard]] bool name(const File& unnamed, const std::string& path) override;

  void remove(const std::string& path) noexcept override {
    // Nobody can act on a file that stays or is gone already.
    static_cast<void>(::unlink(path.c_str()));
  }

  [[nodiscard]] std::unique_ptr<IoQueue> create_queue(std::size_t depth) override;
  [[nodiscard]] std::string queue_kind() override;
  [[nodiscard]] std::string why_no_registered_buffers() override;

 private:
  enum class Ownership : std::uint8_t { duplicate, borrow };

  std::shared_ptr<File> open_path(const char* operation,
                                  const std::string& path,
                                  FileAccess access,
                                  int extra_flags);
  std::shared_ptr<File> take(int fd,
                             FileAccess access,
                             Ownership ownership,
                             const std::string& path);
  const std::string& why_not_io_uring();

  const QueueKind kind_;
  std::shared_ptr<DeviceCatalog> catalog_ = std::make_shared<DeviceCatalog>();
  std::once_flag io_uring_once_;
  std::string why_not_io_uring_;
  std::mutex registration_mutex_;
  bool registers_ = false;  // it worked once; guarded by registration_mutex_
  const RegistrationRefusal refusal_ = std::make_shared<std::atomic<int>>(0);
};

std::shared_ptr<File> SystemStorage::open_path(const char* operation,
                                               const std::string& path,
                                               FileAccess access,
                                               int extra_flags) {
  constexpr mode_t mode = 0666;
  const int flags = open_mode(access) | extra_flags;
  check_path(path, operation);
  // Without O_NONBLOCK a pipe would hold this thread until somebody opens its other end.
  Descriptor descriptor(retry_interrupted([&] {
    return own_descriptor(::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode));
  }));
  if (!descriptor.valid()) {
    open_failed(path, operation, errno);
  }
  const FileIdentity identity = identify(descriptor.get(), path, operation);
  if (access == FileAccess::read) {
    refuse_without_size(descriptor.get(), identity, path, operation);
  }
  if (::fcntl(descriptor.get(), F_SETFL, 0) != 0) {
    throw_io(operation, path, no_offset, errno);
  }
  return std::make_shared<SystemFile>(
      OpenedFile{std::move(descriptor), open_mode(access), access, path, identity, catalog_});
}

std::shared_ptr<File> SystemStorage::take(int fd,
                                          FileAccess access,
                                          Ownership ownership,
                                          const std::string& path) {
  const int flags = checked_flags(fd, access);
  const FileIdentity identity = identify(fd, path, "use descriptor");
  if (access == FileAccess::read) {
    refuse_without_size(fd, identity, path, "use descriptor");
  }
  Descriptor descriptor;
  if ((flags & (O_DIRECT | O_NONBLOCK)) != 0) {
    // Reads through this File may be unaligned, and its queues must not be told to try later.
    descriptor = reopen(fd, flags & ~O_DIRECT);
    if (!descriptor.valid() && (flags & O_DIRECT) != 0) {
      throw_io("reopen without O_DIRECT",
               path.empty() ? path_of_descriptor(fd) : path,
               no_offset,
               errno);
    }
  }
  if (!descriptor.valid()) {
    descriptor = ownership == Ownership::borrow ? Descriptor::borrowed(fd)
                                                : Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  }
  if (!descriptor.valid()) {
    throw_io(
        "duplicate descriptor", path.empty() ? path_of_descriptor(fd) : path, no_offset, errno);
  }
  return std::make_shared<SystemFile>(
      OpenedFile{std::move(descriptor), flags, access, path, identity, catalog_});
}

void SystemStorage::rename(const std::string& from, const std::string& to) {
  check_path(from, "rename");
  check_path(to, "rename");
  const Folder new_home(folder_of(to));
  std::optional<Folder> old_home;
  if (folder_of(from) != folder_of(to)) {
    old_home.emplace(folder_of(from));
  }
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw_io("rename to " + to, from, no_offset, errno);
  }
  new_home.sync();
  if (old_home) {
    old_home->sync();
  }
}

bool SystemStorage::name(const File& unnamed, const std::string& path) {
  check_path(path, "name");
  const Folder home(folder_of(path));
  if (!link_descriptor(unnamed.fd(), path)) {
    return false;
  }
  home.sync();
  return true;
}

const std::string& SystemStorage::why_not_io_uring() {
  std::call_once(io_uring_once_, [this] {
    why_not_io_uring_ = kind_ == QueueKind::threads ? "not asked for" : why_no_io_uring();
  });
  return why_not_io_uring_;
}

std::string SystemStorage::queue_kind() {
  const std::string& why_not = why_not_io_uring();
  return why_not.empty() ? "io_uring" : "threads (io_uring: " + why_not + ")";
}

std::string SystemStorage::why_no_registered_buffers() {
  if (!why_not_io_uring().empty()) {
    return "there is no io_uring";
  }
  if (kind_ == QueueKind::plain_io_uring) {
    return "not asked for";
  }
  if (const int seen = refusal_->load(std::memory_order_relaxed); seen != 0) {
    return explain_registration(seen);
  }
  // Asked until it works once: memory may have been short.
  const std::lock_guard lock(registration_mutex_);
  std::string why_not = registers_ ? "" : hippogriff::why_no_registered_buffers();
  registers_ = why_not.empty();
  return why_not;
}

std::unique_ptr<IoQueue> SystemStorage::create_queue(std::size_t depth) {
  if (depth == 0 || depth > queue_depth_max) {
    throw_invalid("create I/O queue",
                  "the depth must be 1 to " + std::to_string(queue_depth_max) + ", not " +
                      std::to_string(depth));
  }
  const RingBuffers buffers{kind_ != QueueKind::plain_io_uring, refusal_};
  if (kind_ == QueueKind::io_uring || kind_ == QueueKind::plain_io_uring) {
    return make_uring_queue(depth, buffers);
  }
  if (why_not_io_uring().empty()) {
    try {
      return make_uring_queue(depth, buffers);
    } catch (const Error&) {
      // Rings are bounded by memory limits that threads do not know.
      return make_thread_queue(depth);
    }
  }
  return make_thread_queue(depth);
}

}  // namespace

std::shared_ptr<Storage> make_system_storage(QueueKind queue) {
  return std::make_shared<SystemStorage>(queue);
}

std::shared_ptr<Storage> make_system_storage() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read once; the library never changes the environment.
  const char* choice = std::getenv("HIPPOGRIFF_IO");
  const std::string_view kind = choice == nullptr ? "" : choice;
  if (kind.empty()) {
    return make_system_storage(QueueKind::automatic);
  }
  if (kind == "uring") {
    return make_system_storage(QueueKind::io_uring);
  }
  if (kind == "uring-plain") {
    return make_system_storage(QueueKind::plain_io_uring);
  }
  if (kind == "threads") {
    return make_system_storage(QueueKind::threads);
  }
  throw_invalid(
      "start storage",
      "HIPPOGRIFF_IO is \"" + std::string(kind) + "\"; it may be uring, uring-plain or threads");
}

}  // namespace hippogriff
