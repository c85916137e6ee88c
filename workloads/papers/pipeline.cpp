// Threads, each with two slots: one is filled while the other is emptied.
#include "workloads/papers/pipeline.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

namespace {

constexpr unsigned slots = 2;
constexpr std::size_t page_bytes = 4096;  // offsets and sizes of O_DIRECT
constexpr std::size_t piece_bytes_min = std::size_t{512} << 10U;
constexpr unsigned places = 64;  // at which the page cache is asked

std::size_t whole_pages(std::size_t size_bytes) {
  return (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
}

// Whether most of an extent is in the page cache, or cannot be told to be elsewhere.
bool is_cached(const File& file, const Section& part) {
  const std::size_t size = whole_pages(part.size_bytes);
  void* mapping =
      mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd(), static_cast<off_t>(part.offset_bytes));
  if (mapping == MAP_FAILED) {
    return true;
  }
  unsigned found = 0;
  for (unsigned i = 0; i < places; ++i) {
    const std::size_t at = size / page_bytes * i / places * page_bytes;
    unsigned char resident = 1;
    const bool told = mincore(static_cast<char*>(mapping) + at, page_bytes, &resident) == 0;
    found += !told || (resident & 1U) != 0 ? 1 : 0;
  }
  munmap(mapping, size);
  return 2 * found > places;
}

// The same file past the page cache; null where its file system has none of that.
std::unique_ptr<File> past_the_cache(const File& file, int flags) {
  try {
    return std::make_unique<File>(file.path(), flags | O_DIRECT);
  } catch (const std::system_error&) {
    return nullptr;
  }
}

// Gives a file its blocks, so that writes beyond its end need not go one by one.
void lengthen(const File& file, std::size_t size_bytes) {
  if (fallocate(file.fd(), 0, 0, static_cast<off_t>(size_bytes)) != 0 &&
      ftruncate(file.fd(), static_cast<off_t>(size_bytes)) != 0) {
    throw std::system_error(errno, std::generic_category(), "lengthen " + file.path());
  }
}

struct Piece {
  std::size_t begin = 0;
  std::size_t size_bytes = 0;
};

}  // namespace

// What is moved, in pieces that threads take; and the first failure, which ends it.
class Pipeline::Pieces {
 public:
  Pieces(void* device, const Section& part, std::size_t piece_bytes)
      : device_(static_cast<char*>(device)), part_(part), piece_bytes_(piece_bytes) {}

  // An empty one when there are no more.
  Piece take() {
    const std::size_t begin = next_.fetch_add(piece_bytes_);
    return begin < part_.size_bytes
               ? Piece{begin, std::min<std::size_t>(piece_bytes_, part_.size_bytes - begin)}
               : Piece{};
  }

  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) {
      failure_ = std::move(failure);
    }
    next_ = part_.size_bytes;
  }

  void expect_success() const {
    if (failure_ != nullptr) {
      std::rethrow_exception(failure_);
    }
  }

  [[nodiscard]] char* device(const Piece& piece) const { return device_ + piece.begin; }

  [[nodiscard]] std::uint64_t offset(const Piece& piece) const {
    return part_.offset_bytes + piece.begin;
  }

  [[nodiscard]] std::size_t piece_bytes() const { return piece_bytes_; }

  [[nodiscard]] std::size_t size_bytes() const { return part_.size_bytes; }

 private:
  char* device_;
  Section part_;
  std::size_t piece_bytes_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

// One thread's part. `direct` is null where everything goes through the page cache.
class Pipeline::Hand {
 public:
  Hand(Pieces& pieces, CopyQueue& copies, std::byte* memory)
      : pieces_(pieces), copies_(copies), memory_(memory) {}

  void send(const File& buffered, const File* direct) {
    unsigned slot = 0;
    for (Piece piece = pieces_.take(); piece.size_bytes > 0; piece = pieces_.take()) {
      copies_.wait(slot);
      // What lies behind the last byte up to its page is in the file, or the file ends there.
      direct != nullptr ? read_pages(*direct, slot, piece)
                        : buffered.read(at(slot), piece.size_bytes, pieces_.offset(piece));
      copies_.copy_in(pieces_.device(piece), at(slot), piece.size_bytes, slot);
      slot = (slot + 1) % slots;
    }
    copies_.wait(0);
    copies_.wait(1);
  }

  void recv(const File& buffered, const File* direct) {
    std::array<Piece, slots> fetched{};
    for (unsigned slot = 0;; slot = (slot + 1) % slots) {
      const Piece piece = pieces_.take();
      if (piece.size_bytes > 0) {
        copies_.copy_out(at(slot), pieces_.device(piece), piece.size_bytes, slot);
        fetched.at(slot) = piece;
      }
      const unsigned other = (slot + 1) % slots;
      const Piece last = std::exchange(fetched.at(other), Piece{});
      if (last.size_bytes > 0) {
        copies_.wait(other);
        write(buffered, direct, other, last);
      } else if (piece.size_bytes == 0) {
        break;
      }
    }
  }

 private:
  [[nodiscard]] std::byte* at(unsigned slot) const {
    return memory_ + slot * pieces_.piece_bytes();
  }

  void read_pages(const File& direct, unsigned slot, const Piece& piece) const {
    const std::uint64_t offset = pieces_.offset(piece);
    const std::size_t pages = whole_pages(piece.size_bytes);
    std::size_t done = 0;
    while (done < piece.size_bytes) {
      const ssize_t count =
          pread(direct.fd(), at(slot) + done, pages - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "read " + direct.path());
      }
      if (count == 0) {
        throw std::runtime_error("read " + direct.path() + ": ends at byte " +
                                 std::to_string(offset + done));
      }
      done += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
  }

  void write(const File& buffered, const File* direct, unsigned slot, const Piece& piece) const {
    const std::size_t aligned = direct == nullptr ? 0 : piece.size_bytes / page_bytes * page_bytes;
    const std::uint64_t offset = pieces_.offset(piece);
    if (aligned > 0) {
      direct->write(at(slot), aligned, offset);
    }
    if (aligned < piece.size_bytes) {
      buffered.write(at(slot) + aligned, piece.size_bytes - aligned, offset + aligned);
    }
  }

  Pieces& pieces_;
  CopyQueue& copies_;
  std::byte* memory_;
};

Pipeline::Pipeline(Workspace& memory, PipelineShape shape, std::size_t largest_bytes)
    : memory_(memory),
      shape_(shape),
      largest_bytes_(largest_bytes),
      gpu_(memory.device().is_gpu() ? current_gpu() : -1) {}

std::size_t Pipeline::piece_for(std::size_t size_bytes) const {
  const std::size_t share = whole_pages(size_bytes / (std::size_t{slots} * shape_.threads));
  return std::clamp(share, std::min(piece_bytes_min, shape_.piece_bytes), shape_.piece_bytes);
}

unsigned Pipeline::threads_for(std::size_t size_bytes) const {
  const std::size_t pieces = (size_bytes + piece_for(size_bytes) - 1) / piece_for(size_bytes);
  return static_cast<unsigned>(std::clamp<std::size_t>(pieces, 1, shape_.threads));
}

void Pipeline::work(Pieces& pieces, const File& buffered, const File* direct, bool sends) {
  if (pinned_ == nullptr) {
    const std::size_t a_thread = slots * piece_for(largest_bytes_);
    pinned_ =
        std::make_unique<PinnedMemory>(memory_.device(), threads_for(largest_bytes_) * a_thread);
  }
  const auto lend_a_hand = [&](unsigned thread) {
    try {
      const auto copies = open_copy_queue(memory_.device(), gpu_, slots);
      std::byte* memory = pinned_->get() + std::size_t{thread} * slots * pieces.piece_bytes();
      Hand hand(pieces, *copies, memory);
      sends ? hand.send(buffered, direct) : hand.recv(buffered, direct);
    } catch (...) {
      pieces.fail(std::current_exception());
    }
  };
  {
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < threads_for(pieces.size_bytes()); ++i) {
      others.emplace_back(lend_a_hand, i);
    }
    lend_a_hand(0);
  }
  pieces.expect_success();
  ++(direct != nullptr ? direct_moves_ : buffered_moves_);
}

void* Pipeline::send(const File& in, const Section& part) {
  char* memory = memory_.allocate<char>(part.size_bytes);
  const auto direct = is_cached(in, part) ? nullptr : past_the_cache(in, O_RDONLY);
  Pieces pieces(memory, part, piece_for(part.size_bytes));
  work(pieces, in, direct.get(), true);
  return memory;
}

void Pipeline::recv(const File& out, void* memory, std::size_t size_bytes) {
  const bool large = size_bytes >= piece_bytes_min;
  const auto direct = large ? past_the_cache(out, O_WRONLY) : nullptr;
  if (large) {
    lengthen(out, size_bytes);
  }
  Pieces pieces(memory, {0, size_bytes}, piece_for(size_bytes));
  work(pieces, out, direct.get(), false);
}

std::string Pipeline::report() const {
  return R"({"way": "pipelined", "threads": )" + std::to_string(threads_for(largest_bytes_)) +
         R"(, "piece_bytes": )" + std::to_string(piece_for(largest_bytes_)) +
         R"(, "past_the_page_cache": )" + std::to_string(direct_moves_) +
         R"(, "through_the_page_cache": )" + std::to_string(buffered_moves_) + "}";
}
