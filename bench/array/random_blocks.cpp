// What a drive gives to random reads or writes past the page cache through io_uring and nothing
// else, as fio measures it: the limit of an array's misses, and of what it writes back. usage:
// random_blocks read|write FILE BLOCK_BYTES COUNT DEPTH...   (a JSON line for each DEPTH)
//
// Each moves COUNT different blocks, in no order, with DEPTH under way, between the file and
// registered buffers. What is written is not what was there; it is over when the drive keeps it.
#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace {

struct Wish {
  bool writes = false;
  const char* path = nullptr;
  std::uint64_t block_bytes = 0;
  std::uint64_t count = 0;
};

[[noreturn]] void fail(int error, const char* what) {
  throw std::system_error(error, std::generic_category(), what);
}

// Different ones, of those that lie in the file as a whole.
std::vector<std::uint64_t> random_blocks(const Wish& wish, std::uint64_t there, unsigned seed) {
  std::vector<std::uint64_t> blocks(there);
  std::iota(blocks.begin(), blocks.end(), std::uint64_t{0});
  std::mt19937_64 random(seed);
  for (std::uint64_t i = 0; i < wish.count; ++i) {
    std::swap(blocks[i], blocks[i + random() % (there - i)]);
  }
  blocks.resize(wish.count);
  return blocks;
}

class Ring {
 public:
  Ring(unsigned depth, const Wish& wish, int fd)
      : fd_(fd),
        writes_(wish.writes),
        block_bytes_(wish.block_bytes),
        size_(depth * wish.block_bytes) {
    memory_ = ::mmap(
        nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory_ == MAP_FAILED) {
      fail(errno, "mmap");
    }
    if (const int status = io_uring_queue_init(depth, &ring_, 0); status != 0) {
      static_cast<void>(::munmap(memory_, size_));
      fail(-status, "io_uring_queue_init");
    }
    std::mt19937_64 random(depth);  // no zeros, which some drives would not write
    std::generate_n(static_cast<std::uint64_t*>(memory_), size_ / sizeof(std::uint64_t), random);
    const iovec all{memory_, size_};
    registered_ = io_uring_register_buffers(&ring_, &all, 1) == 0;
  }

  ~Ring() {
    io_uring_queue_exit(&ring_);
    static_cast<void>(::munmap(memory_, size_));
  }

  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Submitted by wait().
  void ask(std::uint64_t slot, std::uint64_t block) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    void* buffer = static_cast<char*>(memory_) + slot * block_bytes_;
    const auto size = static_cast<unsigned>(block_bytes_);
    const std::uint64_t offset = block * block_bytes_;
    if (writes_ && registered_) {
      io_uring_prep_write_fixed(entry, fd_, buffer, size, offset, 0);
    } else if (writes_) {
      io_uring_prep_write(entry, fd_, buffer, size, offset);
    } else if (registered_) {
      io_uring_prep_read_fixed(entry, fd_, buffer, size, offset, 0);
    } else {
      io_uring_prep_read(entry, fd_, buffer, size, offset);
    }
    io_uring_sqe_set_data64(entry, slot);
  }

  // Calls done(slot) for those that have come, of which there is one at least.
  template <typename Done>
  void wait(const Done& done) {
    if (const int status = io_uring_submit_and_wait(&ring_, 1); status < 0 && status != -EINTR) {
      fail(-status, "io_uring_submit_and_wait");
    }
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
      const std::uint64_t slot = entry->user_data;
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      if (result != static_cast<int>(block_bytes_)) {
        throw std::runtime_error(std::string(writes_ ? "a write" : "a read") + " returned " +
                                 std::to_string(result));
      }
      done(slot);
    }
  }

 private:
  io_uring ring_{};
  int fd_;
  bool writes_;
  std::uint64_t block_bytes_;
  std::uint64_t size_;
  void* memory_ = nullptr;
  bool registered_ = false;
};

double seconds_of(const Wish& wish, int fd, std::uint64_t there, unsigned depth) {
  const auto blocks = random_blocks(wish, there, depth);
  Ring ring(depth, wish, fd);
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t asked = 0;
  std::uint64_t came = 0;
  for (; asked < std::min<std::uint64_t>(depth, wish.count); ++asked) {
    ring.ask(asked, blocks[asked]);
  }
  while (came < wish.count) {
    ring.wait([&](std::uint64_t slot) {
      ++came;
      if (asked < wish.count) {
        ring.ask(slot, blocks[asked++]);
      }
    });
  }
  if (wish.writes && ::fdatasync(fd) != 0) {
    fail(errno, "fdatasync");
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void measure(const Wish& wish, std::span<char*> depths) {
  const int access = wish.writes ? O_RDWR : O_RDONLY;
  const int fd = ::open(wish.path, access | O_DIRECT | O_CLOEXEC);
  struct stat facts{};
  if (fd < 0 || ::fstat(fd, &facts) != 0) {
    fail(errno, wish.path);
  }
  const std::uint64_t there = static_cast<std::uint64_t>(facts.st_size) / wish.block_bytes;
  if (there < wish.count) {
    throw std::runtime_error("the file has " + std::to_string(there) + " blocks");
  }
  for (const char* text : depths) {
    const unsigned long depth = std::strtoul(text, nullptr, 10);
    if (depth == 0 || depth > 4096) {
      throw std::runtime_error("a depth is 1 to 4096");
    }
    const double seconds = seconds_of(wish, fd, there, static_cast<unsigned>(depth));
    std::printf("{\"block_bytes\": %llu, \"count\": %llu, \"depth\": %lu, \"seconds\": %.6f}\n",
                static_cast<unsigned long long>(wish.block_bytes),
                static_cast<unsigned long long>(wish.count),
                depth,
                seconds);
  }
  static_cast<void>(::close(fd));
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  const std::string verb = words.size() >= 6 ? words[1] : "";
  Wish wish;
  if (verb == "read" || verb == "write") {
    wish = {verb == "write",
            words[2],
            std::strtoull(words[3], nullptr, 10),
            std::strtoull(words[4], nullptr, 10)};
  }
  if (wish.block_bytes < 512 || wish.block_bytes > (1U << 30U) || wish.count == 0) {
    static_cast<void>(
        std::fputs("usage: random_blocks read|write FILE BLOCK_BYTES COUNT DEPTH...\n", stderr));
    return 2;
  }
  try {
    measure(wish, words.subspan(5));
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    static_cast<void>(std::fprintf(stderr, "random_blocks: %s\n", error.what()));
    return EXIT_FAILURE;
  }
}
