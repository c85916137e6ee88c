// What a good programmer writes without hippogriff: naive read + copy, rings of threads, mappings.
#include "transfer/contender.hpp"
#include "transfer/threads.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>

namespace bench {

namespace {

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void finish_writing(const Place& place, int fd) {
  if (!place.in_memory && fdatasync(fd) != 0) {
    throw_errno("fdatasync");
  }
}

// The program everybody writes first: ordinary memory, one thread, one blocking copy.
class Naive : public Contender {
 public:
  explicit Naive(const Bench& bench) : bench_(bench) {}

  [[nodiscard]] std::string name() const override { return "naive"; }

  [[nodiscard]] std::string refusal(const Case& /*what*/) const override { return ""; }

  nlohmann::json run(const Case& what) override {
    const std::unique_ptr<void, decltype(&std::free)> memory(std::malloc(what.size), &std::free);
    auto* bytes = static_cast<std::byte*>(memory.get());
    if (bytes == nullptr) {
      throw std::bad_alloc();
    }
    if (what.direction == Direction::send) {
      const Descriptor file(what.place->source(), O_RDONLY);
      read_fully(file.get(), bytes, what.size, 0);
      bench_.device.to_device(bench_.device_memory, bytes, what.size);
    } else {
      const Descriptor file(what.place->target(), O_WRONLY);
      bench_.device.to_host(bytes, bench_.device_memory, what.size);
      write_fully(file.get(), bytes, what.size, 0);
      finish_writing(*what.place, file.get());
    }
    return nullptr;
  }

  [[nodiscard]] double expected_rate(const Case& what) const override {
    return std::min(expected_copy_rate(what, 1.2e9), 1.2e9);
  }

  [[nodiscard]] unsigned repetitions_max(const Case& what) const override {
    return what.slow() || what.size > 1024 * mebibyte ? 1 : 3;  // it takes most of the time
  }

 private:
  Bench bench_;
};

enum class Through : std::uint8_t { page_cache, drive };

// `threads` threads with two pinned slots each: the next piece is read (or fetched from the device)
// while the last one is copied (or written).
class ThreadRing : public Contender {
 public:
  ThreadRing(const Bench& bench, unsigned threads, std::uint64_t piece, Through through)
      : bench_(bench), threads_(threads), piece_(piece), through_(through) {
    if (bench_.pinned.size() < piece * slots * threads) {
      throw std::invalid_argument("the pinned memory is too small for this ring");
    }
    for (unsigned t = 0; t < threads; ++t) {
      queues_.push_back(bench_.device.create_queue(slots));
    }
  }

  [[nodiscard]] std::string name() const override {
    return through_ == Through::drive ? "ring_direct" : "ring_buffered";
  }

  [[nodiscard]] nlohmann::json parameters() const override {
    return {{"threads", threads_}, {"piece_bytes", piece_}, {"slots_per_thread", slots}};
  }

  [[nodiscard]] std::string refusal(const Case& what) const override {
    if (through_ == Through::drive && what.place->in_memory) {
      return "there is no drive";
    }
    if (through_ == Through::drive && what.state == State::cached) {
      return "O_DIRECT would not use the page cache";
    }
    const bool sweep = threads_ != default_threads || piece_ != default_piece;
    if (through_ == Through::page_cache && sweep && what.direction == Direction::send &&
        what.state != State::cached) {
      return "swept on cached files only";
    }
    if (through_ == Through::page_cache && sweep && what.direction == Direction::recv &&
        (!what.place->in_memory || piece_ != default_piece)) {
      return "swept back to tmpfs only";
    }
    return what.size < 4 * piece_ ? "too small for a ring" : "";
  }

  nlohmann::json run(const Case& what) override {
    const bool sending = what.direction == Direction::send;
    const int direct = through_ == Through::drive ? O_DIRECT : 0;
    const Descriptor file(sending ? what.place->source() : what.place->target(),
                          (sending ? O_RDONLY : O_WRONLY) | direct);
    if (!sending && direct != 0 &&
        fallocate(file.get(), 0, 0, static_cast<off_t>(what.size)) != 0) {
      throw_errno("fallocate");
    }
    next_ = 0;
    run_threads(threads_, [&](unsigned thread) {
      bench_.device.make_current();
      sending ? send(thread, file, what.size) : recv(thread, file, what.size);
    });
    if (!sending) {
      finish_writing(*what.place, file.get());
    }
    return nullptr;
  }

  [[nodiscard]] double expected_rate(const Case& what) const override {
    return expected_copy_rate(what, bench_.device.is_gpu() ? 40e9 : 5e9);
  }

  // Readahead and writeback of a drive take minutes of several rounds, and tell little.
  [[nodiscard]] unsigned repetitions_max(const Case& what) const override {
    if (!what.slow()) {
      return 1000;
    }
    return through_ == Through::page_cache ? 1 : 5;
  }

  static constexpr unsigned default_threads = 12;
  static constexpr std::uint64_t default_piece = 4 * mebibyte;
  static constexpr unsigned slots = 2;

 private:
  [[nodiscard]] std::byte* slot_memory(unsigned thread, unsigned slot) const {
    return bench_.pinned.data() + (std::uint64_t{thread} * slots + slot) * piece_;
  }

  void send(unsigned thread, const Descriptor& file, std::uint64_t size) {
    CopyQueue& queue = *queues_[thread];
    for (unsigned slot = 0;; slot = (slot + 1) % slots) {
      const std::uint64_t offset = next_.fetch_add(piece_);
      if (offset >= size) {
        break;
      }
      const std::uint64_t count = std::min(piece_, size - offset);
      std::byte* memory = slot_memory(thread, slot);
      queue.wait(slot);
      read_fully(file.get(), memory, count, offset);
      queue.to_device(bench_.device_memory + offset, memory, count, slot);
    }
    queue.drain();
  }

  void recv(unsigned thread, const Descriptor& file, std::uint64_t size) {
    CopyQueue& queue = *queues_[thread];
    Extent fetched[slots] = {};
    for (unsigned slot = 0;; slot = (slot + 1) % slots) {
      const std::uint64_t offset = next_.fetch_add(piece_);
      const bool more = offset < size;
      if (more) {
        fetched[slot] = {offset, std::min(piece_, size - offset)};
        queue.to_host(
            slot_memory(thread, slot), bench_.device_memory + offset, fetched[slot].size, slot);
      }
      const unsigned last = (slot + 1) % slots;
      if (fetched[last].size > 0) {
        queue.wait(last);
        write_fully(
            file.get(), slot_memory(thread, last), fetched[last].size, fetched[last].offset);
        fetched[last] = {};
      } else if (!more) {
        break;
      }
    }
    queue.drain();
  }

  Bench bench_;
  unsigned threads_;
  std::uint64_t piece_;
  Through through_;
  std::vector<std::unique_ptr<CopyQueue>> queues_;
  std::atomic<std::uint64_t> next_ = 0;
};

// One file for a case, mapped shared by windows.
class Window {
 public:
  Window(int fd, Extent extent, int flags) : size_(extent.size) {
    void* memory = mmap(nullptr,
                        size_,
                        PROT_READ | PROT_WRITE,
                        MAP_SHARED | flags,
                        fd,
                        static_cast<off_t>(extent.offset));
    if (memory == MAP_FAILED) {
      throw_errno("mmap");
    }
    memory_ = static_cast<std::byte*>(memory);
  }

  ~Window() { munmap(memory_, size_); }

  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  [[nodiscard]] std::byte* get() const { return memory_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t size_;
};

enum class Mapping : std::uint8_t { copied_into, registered };

// Back to tmpfs through mappings, so that threads do not queue for the file's lock: the CPU copies
// from pinned slots into the mapping, or windows of it are registered and the device writes there.
class MappedRecv : public Contender {
 public:
  MappedRecv(const Bench& bench, unsigned threads, Mapping mapping)
      : bench_(bench), threads_(threads), mapping_(mapping) {
    for (unsigned t = 0; t < threads; ++t) {
      queues_.push_back(bench_.device.create_queue(1));
    }
  }

  [[nodiscard]] std::string name() const override {
    return mapping_ == Mapping::registered ? "mapping_registered" : "mapping_copied";
  }

  [[nodiscard]] nlohmann::json parameters() const override {
    return {{"threads", threads_}, {"window_bytes", window()}};
  }

  [[nodiscard]] std::string refusal(const Case& what) const override {
    if (what.direction != Direction::recv || !what.place->in_memory) {
      return "a way back to tmpfs only";
    }
    if (mapping_ == Mapping::registered && !bench_.device.is_gpu()) {
      return "nothing to register for on device host";
    }
    return what.size < 2 * window() ? "too small for windows" : "";
  }

  nlohmann::json run(const Case& what) override {
    const Descriptor file(what.place->target(), O_RDWR);
    if (ftruncate(file.get(), static_cast<off_t>(what.size)) != 0) {
      throw_errno("ftruncate");
    }
    std::atomic<std::uint64_t> next = 0;
    run_threads(threads_, [&](unsigned thread) {
      bench_.device.make_current();
      for (;;) {
        const std::uint64_t offset = next.fetch_add(window());
        if (offset >= what.size) {
          return;
        }
        move(thread, file.get(), {offset, std::min(window(), what.size - offset)});
      }
    });
    return nullptr;
  }

  [[nodiscard]] double expected_rate(const Case& /*what*/) const override { return 4e9; }

 private:
  [[nodiscard]] std::uint64_t window() const {
    return mapping_ == Mapping::registered ? 64 * mebibyte : 4 * mebibyte;
  }

  void move(unsigned thread, int fd, Extent extent) {
    CopyQueue& queue = *queues_[thread];
    if (mapping_ == Mapping::registered) {
      const Window memory(fd, extent, MAP_POPULATE);
      bench_.device.register_host(memory.get(), extent.size);
      try {
        queue.to_host(memory.get(), bench_.device_memory + extent.offset, extent.size, 0);
        queue.wait(0);
      } catch (...) {
        bench_.device.unregister_host(memory.get());
        throw;
      }
      bench_.device.unregister_host(memory.get());
    } else {
      const Window memory(fd, extent, 0);
      std::byte* slot = bench_.pinned.data() + thread * window();
      queue.to_host(slot, bench_.device_memory + extent.offset, extent.size, 0);
      queue.wait(0);
      std::memcpy(memory.get(), slot, extent.size);
    }
  }

  Bench bench_;
  unsigned threads_;
  Mapping mapping_;
  std::vector<std::unique_ptr<CopyQueue>> queues_;
};

}  // namespace

void add_hand_written(Contenders& to, const Bench& bench, Effort effort) {
  constexpr unsigned usual = ThreadRing::default_threads;
  constexpr std::uint64_t piece = ThreadRing::default_piece;
  to.push_back(std::make_unique<Naive>(bench));
  to.push_back(std::make_unique<ThreadRing>(bench, usual, piece, Through::page_cache));
  to.push_back(std::make_unique<ThreadRing>(bench, 4, piece, Through::drive));
  to.push_back(std::make_unique<MappedRecv>(bench, usual, Mapping::copied_into));
  to.push_back(std::make_unique<MappedRecv>(bench, 4, Mapping::registered));
  if (effort == Effort::quick) {
    return;
  }
  for (const unsigned threads : {8U, 12U, 16U}) {
    for (const std::uint64_t size : {2 * mebibyte, 4 * mebibyte}) {
      if (threads != usual || size != piece) {
        to.push_back(std::make_unique<ThreadRing>(bench, threads, size, Through::page_cache));
      }
    }
  }
  to.push_back(std::make_unique<ThreadRing>(bench, 2, piece, Through::page_cache));
  to.push_back(std::make_unique<MappedRecv>(bench, 8, Mapping::copied_into));
  to.push_back(std::make_unique<MappedRecv>(bench, 16, Mapping::copied_into));
  to.push_back(std::make_unique<MappedRecv>(bench, 8, Mapping::registered));
}

}  // namespace bench
