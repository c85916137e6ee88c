// A GPU of several processes: the null driver gives its memory, the stand-in for NVML tells who has
// it. A table in the file that NULL_CUDA_SHARED_GPU names; who has died holds nothing.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace hippogriff::testing {

class SharedGpu {
 public:
  struct Holder {
    std::uint64_t pid = 0;
    std::uint64_t bytes = 0;
  };

  // Null where none is named, or it cannot be opened. The process's, until its end.
  static SharedGpu* of_process() {
    static SharedGpu* const gpu = [] {
      const char* path = std::getenv("NULL_CUDA_SHARED_GPU");  // NOLINT(concurrency-mt-unsafe)
      const int fd = path != nullptr ? ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
      void* table = MAP_FAILED;
      if (fd >= 0 && ::ftruncate(fd, sizeof(Table)) == 0) {
        table = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      }
      return table != MAP_FAILED ? new SharedGpu(fd, static_cast<Table*>(table)) : nullptr;
    }();
    return gpu;
  }

  // This process holds so much from now on, or as much as before, and false, where the others leave
  // too little.
  bool hold(std::uint64_t pid, std::uint64_t bytes, std::uint64_t capacity_bytes) {
    const FileLock lock(fd_);
    Entry* own = nullptr;
    std::uint64_t others_bytes = 0;
    for (Entry& entry : *table_) {
      const std::uint64_t holder = entry.pid.load();
      if (holder == pid || (own == nullptr && !lives(holder))) {
        own = own != nullptr && own->pid.load() == pid ? own : &entry;
      }
      if (holder != pid && lives(holder)) {
        others_bytes += entry.bytes.load();
      }
    }
    const std::uint64_t before = own != nullptr && own->pid.load() == pid ? own->bytes.load() : 0;
    if (own == nullptr || (bytes > before && others_bytes + bytes > capacity_bytes)) {
      return false;
    }
    own->bytes = bytes;
    own->pid = pid;
    return true;
  }

  [[nodiscard]] std::vector<Holder> holders() const {
    std::vector<Holder> found;
    for (const Entry& entry : *table_) {
      const Holder holder{.pid = entry.pid.load(), .bytes = entry.bytes.load()};
      if (holder.bytes != 0 && lives(holder.pid)) {
        found.push_back(holder);
      }
    }
    return found;
  }

 private:
  struct Entry {
    std::atomic<std::uint64_t> pid;
    std::atomic<std::uint64_t> bytes;
  };

  using Table = std::array<Entry, 64>;

  // The kernel ends it with the process.
  class FileLock {
   public:
    explicit FileLock(int fd) : fd_(fd) { set(F_WRLCK); }

    ~FileLock() { set(F_UNLCK); }

    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

   private:
    void set(short type) const {
      struct flock range{};
      range.l_type = type;
      range.l_whence = SEEK_SET;
      while (::fcntl(fd_, F_SETLKW, &range) != 0 && errno == EINTR) {
      }
    }

    int fd_;
  };

  SharedGpu(int fd, Table* table) : fd_(fd), table_(table) {}

  // The driver has freed everything when a process is a zombie.
  static bool lives(std::uint64_t pid) {
    if (pid == 0) {
      return false;
    }
    const int fd = ::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
    std::array<char, 256> bytes{};
    const ssize_t size = fd >= 0 ? ::read(fd, bytes.data(), bytes.size()) : -1;
    if (fd >= 0) {
      ::close(fd);
    }
    const std::string_view text(bytes.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
    const std::size_t name_end = text.rfind(')');
    return name_end != std::string_view::npos && name_end + 2 < text.size() &&
           text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
  }

  int fd_;
  Table* table_;
};

}  // namespace hippogriff::testing
