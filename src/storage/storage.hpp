// Files as the transfer runtime needs them: facts, residency, direct and buffered reads and writes.
// The system calls stand behind one interface, so that faults are a backend (testing/).
#pragma once

#include "base/error.hpp"
#include "base/range.hpp"

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hippogriff {

enum class FileAccess : std::uint8_t { read, write, read_write };

inline constexpr const char* locked_memory_refusal =
    "the limit of locked memory (RLIMIT_MEMLOCK) is too small";

// What is known of an open file. Sizes in bytes.
struct FileFacts {
  std::string path;        // as opened, else what /proc says; for messages
  std::string filesystem;  // "ext4", "tmpfs", "block"
  std::string drive;       // "vda", "nvme0n1"; "" when there is none (tmpfs, overlay, network)
  std::uint64_t device_number = 0;  // st_dev: the file system (or st_rdev of a block device)
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  bool direct = false;  // O_DIRECT works
  // A file whose drive wants more is not moved by O_DIRECT: the shortest pieces (settings) would
  // have no whole step in them.
  static constexpr std::uint32_t direct_alignment_max = std::uint32_t{64} << 10;
  std::uint32_t direct_alignment = 0;  // of offset, size and memory; 0 when !direct
  std::string why_not_direct;          // a clause for people; "" when direct
  bool in_memory = false;              // tmpfs and the like: always resident
  bool is_block_device = false;
};

// What one fstat tells: the part of the facts that costs next to nothing. Sizes in bytes.
struct FileIdentity {
  std::uint64_t device_number = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  bool is_block_device = false;
};

// How much of a range is in the page cache; the part past the end of the file is left out.
struct Residency {
  std::uint64_t resident_bytes = 0;
  std::uint64_t total_bytes = 0;
  bool exact = true;  // false: estimated from windows spread over the range
};

// An open file: the buffered description, and one more with O_DIRECT where that works.
// Closes what it opened. Thread-safe.
class File {
 public:
  virtual ~File() = default;
  // As they were when asked first, which costs some ten system calls. identity() costs none.
  [[nodiscard]] virtual const FileFacts& facts() const = 0;

  [[nodiscard]] virtual FileIdentity identity() const {
    const FileFacts& known = facts();
    return {known.device_number, known.inode, known.size, known.is_block_device};
  }

  [[nodiscard]] virtual int fd() const = 0;
  [[nodiscard]] virtual int direct_fd() const = 0;  // -1 when !facts().direct

  // Each reads or writes as much as the kernel gives in one go, retrying EINTR. A count shorter
  // than asked is a result, 0 at the end of the file. Throws Error(io_error). read_cached gives
  // only bytes in the page cache, without starting a read of the others: nothing when the first is
  // not there, or when it cannot be known.
  [[nodiscard]] virtual std::size_t read(std::span<std::byte> to, std::uint64_t offset) = 0;

  [[nodiscard]] std::optional<std::size_t> read_cached(std::span<std::byte> to,
                                                       std::uint64_t offset) {
    const iovec piece{to.data(), to.size()};
    return read_cached_pieces({&piece, 1}, offset, PageCache::unknown);
  }

  // The same into several pieces of memory, one after the other, at most IOV_MAX. What is probably
  // in the page cache is not asked for before, which is faster; if it is not there, the kernel may
  // begin to read it.
  enum class PageCache : std::uint8_t { unknown, probable };
  [[nodiscard]] virtual std::optional<std::size_t> read_cached_pieces(std::span<const iovec> to,
                                                                      std::uint64_t offset,
                                                                      PageCache expected) = 0;
  [[nodiscard]] virtual std::size_t write(std::span<const std::byte> from,
                                          std::uint64_t offset) = 0;

  // By cachestat, else mincore where it tells the truth (own or writable file), else probing reads.
  // Nothing when it cannot be known: then treat the range as cold.
  [[nodiscard]] virtual std::optional<Residency> residency(Range range) = 0;

  [[nodiscard]] virtual std::uint64_t size_now() = 0;  // fstat, again
  // Reserves blocks for the range, which is about to be written, by fallocate where the file system
  // can; the file is at least as long as range.end() then. ENOSPC throws.
  virtual void allocate(Range range) = 0;
  virtual void truncate(std::uint64_t size) = 0;
  virtual void sync() = 0;  // fdatasync

  // Has the kernel begin to write what of the range is dirty. May wait where much is on its way.
  virtual void begin_write_back(Range /*range*/) noexcept {}

  // Has the kernel read what of the range is not in the page cache, as far as the file goes. May
  // wait where much is on its way.
  virtual void begin_read_ahead(Range /*range*/) noexcept {}

  // Maps a range shared; its offset must be a multiple of the page size. Touching pages past the
  // end of the file, also one truncated since, raises SIGBUS: the caller clamps to size_now().
  // Anything but FileAccess::read needs a descriptor open for both. Throws Error(io_error). unmap
  // takes what map returned and never fails visibly.
  [[nodiscard]] virtual std::span<std::byte> map(Range range, FileAccess access) = 0;
  virtual void unmap(std::span<std::byte> mapping) noexcept = 0;
};

// One read or write for an IoQueue. Memory, offset and size must keep the file's direct alignment
// when direct is set. The file must stay until its completion is reaped.
struct IoRequest {
  enum class Kind : std::uint8_t { read, write };
  Kind kind = Kind::read;
  File* file = nullptr;
  bool direct = true;
  std::uint64_t offset = 0;
  std::span<std::byte> memory;
  // Where there are several pieces of memory, one after the other, at most IOV_MAX: instead of
  // `memory`, each of which keeps the alignment. Copied.
  std::span<const iovec> pieces;
  std::uint64_t tag = 0;  // comes back with the completion
  // What `memory` is a part of, where many requests use parts of it in turn; it must then stay, the
  // same pages, as long as the queue does, which may register it with the kernel. Empty: unknown.
  std::span<std::byte> buffer;
};

struct IoCompletion {
  std::uint64_t tag = 0;
  std::int64_t result = 0;  // bytes moved (may be short), or -errno
};

// Many reads and writes in flight. One thread at a time; it should live until its requests are
// reaped. Destruction waits for what is in flight as long as that takes, because the drive may
// still write into its memory; it says so on stderr every 30 s.
class IoQueue {
 public:
  virtual ~IoQueue() = default;
  // At most `depth` may be in flight. Throws Error(io_error) when the queue itself fails: then the
  // request is not in flight.
  virtual void submit(const IoRequest& request) = 0;

  // The same, but it may begin only with submit_prepared() or reap(): requests that begin together
  // cost fewer calls of the system, and a virtual machine fewer calls of its host. What the queue
  // refuses then completes with its error.
  virtual void prepare(const IoRequest& request) { submit(request); }

  virtual void submit_prepared() {}

  // Takes what has completed, waiting up to `timeout` for the first. Returns 0 at once when nothing
  // is in flight.
  virtual std::size_t reap(std::span<IoCompletion> completions,
                           std::chrono::nanoseconds timeout) = 0;
  [[nodiscard]] virtual std::size_t in_flight() const = 0;
};

// Where files come from. Thread-safe.
class Storage {
 public:
  virtual ~Storage() = default;
  // Throws Error: io_error with errno, invalid_argument for a directory, a socket, a closed
  // descriptor or one without the access asked for.
  [[nodiscard]] virtual std::shared_ptr<File> open(const std::string& path, FileAccess access) = 0;
  // Duplicates the descriptor: the caller may close theirs.
  [[nodiscard]] virtual std::shared_ptr<File> adopt(int fd, FileAccess access) = 0;

  // As adopt, without the duplicate: the caller keeps `fd` open as long as the File lives.
  [[nodiscard]] virtual std::shared_ptr<File> borrow(int fd, FileAccess access) {
    return adopt(fd, access);
  }

  // As adopt; `path` is what messages and facts call the file.
  [[nodiscard]] virtual std::shared_ptr<File> adopt_as(int fd,
                                                       FileAccess access,
                                                       const std::string& path) {
    static_cast<void>(path);
    return adopt(fd, access);
  }

  // Creates a file for writing (mode 0666 less umask), truncating what is there.
  [[nodiscard]] virtual std::shared_ptr<File> create(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;  // and syncs the folder
  // Gives an open file that has no name that one, and syncs the folder; false where there is a file
  // of that name.
  [[nodiscard]] virtual bool name(const File& unnamed, const std::string& path) = 0;
  virtual void remove(const std::string& path) noexcept = 0;
  // io_uring, else a pool of threads where the kernel or the container forbids it.
  [[nodiscard]] virtual std::unique_ptr<IoQueue> create_queue(std::size_t depth) = 0;
  // "io_uring", or "threads (io_uring: <why not>)"; why_not is locked_memory_refusal where that is
  // the reason.
  [[nodiscard]] virtual std::string queue_kind() = 0;
  // Why the buffers that requests name stay unregistered; "" when they do not.
  [[nodiscard]] virtual std::string why_no_registered_buffers() = 0;
};

enum class QueueKind : std::uint8_t {
  automatic,       // io_uring, else threads
  io_uring,        // create_queue throws Error(unsupported) where there is none
  plain_io_uring,  // the same without registered buffers, as where the system refuses them
  threads,
};

// The machine's own storage. Without an argument the environment chooses: HIPPOGRIFF_IO=uring,
// =uring-plain or =threads, else automatic; another value throws Error(invalid_argument).
std::shared_ptr<Storage> make_system_storage();
std::shared_ptr<Storage> make_system_storage(QueueKind queue);

}  // namespace hippogriff
