// The limits: what the device's link and the drive give by themselves.
#include "transfer/contender.hpp"
#include "transfer/measure.hpp"

#include <fcntl.h>
#include <liburing.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace bench {

namespace {

// As many bytes as the case, from or to pinned memory, again and again the same.
class LinkLimit : public Contender {
 public:
  explicit LinkLimit(const Bench& bench) : bench_(bench) {
    for (unsigned t = 0; t < bench_.device.copy_threads(); ++t) {
      queues_.push_back(bench_.device.create_queue(1));
    }
  }

  [[nodiscard]] std::string name() const override { return "link_limit"; }

  [[nodiscard]] nlohmann::json parameters() const override { return {{"threads", queues_.size()}}; }

  [[nodiscard]] std::string refusal(const Case& what) const override {
    const bool fits = what.state == State::cached || what.direction == Direction::recv;
    return fits ? "" : "the link is the limit of cached files only";
  }

  [[nodiscard]] bool moves_contents() const override { return false; }

  nlohmann::json run(const Case& what) override {
    std::vector<std::jthread> threads;
    const std::uint64_t share = what.size / queues_.size() / 8 * 8;
    for (std::size_t t = 1; t < queues_.size(); ++t) {
      threads.emplace_back(
          [this, &what, t, share] { copy(what.direction, t, {t * share, share}); });
    }
    copy(what.direction, 0, {0, share});
    return nullptr;
  }

  [[nodiscard]] double expected_rate(const Case& /*what*/) const override {
    return bench_.device.is_gpu() ? 50e9 : 8e9;
  }

 private:
  void copy(Direction direction, std::size_t thread, Extent extent) {
    bench_.device.make_current();
    CopyQueue& queue = *queues_[thread];
    const std::uint64_t own = bench_.pinned.size() / queues_.size() / 4096 * 4096;
    std::byte* memory = bench_.pinned.data() + thread * own;
    const std::uint64_t step = std::min<std::uint64_t>(64 * mebibyte, own);
    for (std::uint64_t done = 0; done < extent.size; done += step) {
      const std::uint64_t count = std::min(step, extent.size - done);
      std::byte* from = memory + done % (own / step * step);
      if (direction == Direction::send) {
        queue.to_device(bench_.device_memory + extent.offset + done, from, count, 0);
      } else {
        queue.to_host(from, bench_.device_memory + extent.offset + done, count, 0);
      }
    }
    queue.drain();
  }

  Bench bench_;
  std::vector<std::unique_ptr<CopyQueue>> queues_;
};

// An io_uring with registered buffers, set up outside the measured time.
class Ring {
 public:
  Ring(unsigned depth, std::span<std::byte> memory, std::uint64_t block) {
    const int status = io_uring_queue_init(depth, &ring_, 0);
    if (status != 0) {
      throw std::system_error(-status, std::generic_category(), "io_uring_queue_init");
    }
    for (unsigned i = 0; i < depth; ++i) {
      buffers_.push_back({memory.data() + i * block, block});
    }
    registered_ = io_uring_register_buffers(&ring_, buffers_.data(), depth) == 0;
  }

  ~Ring() { io_uring_queue_exit(&ring_); }

  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  void submit(Direction direction, int fd, unsigned slot, Extent extent) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    void* memory = buffers_[slot].iov_base;
    const auto size = static_cast<unsigned>(extent.size);
    const int index = static_cast<int>(slot);
    if (direction == Direction::send && registered_) {
      io_uring_prep_read_fixed(entry, fd, memory, size, extent.offset, index);
    } else if (direction == Direction::send) {
      io_uring_prep_read(entry, fd, memory, size, extent.offset);
    } else if (registered_) {
      io_uring_prep_write_fixed(entry, fd, memory, size, extent.offset, index);
    } else {
      io_uring_prep_write(entry, fd, memory, size, extent.offset);
    }
    io_uring_sqe_set_data64(entry, slot);
    const int status = io_uring_submit(&ring_);
    if (status < 0) {
      throw std::system_error(-status, std::generic_category(), "io_uring_submit");
    }
  }

  // The slot of a request that is done, and what it returned.
  std::pair<unsigned, int> wait() {
    io_uring_cqe* entry = nullptr;
    __kernel_timespec limit{60, 0};
    const int status = io_uring_wait_cqe_timeout(&ring_, &entry, &limit);
    if (status < 0) {
      throw std::system_error(-status, std::generic_category(), "io_uring_wait_cqe");
    }
    const std::pair<unsigned, int> result{static_cast<unsigned>(entry->user_data), entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return result;
  }

 private:
  io_uring ring_{};
  std::vector<iovec> buffers_;
  bool registered_ = false;
};

// The bytes of the case that are not cached, by O_DIRECT alone, no device involved.
class DriveLimit : public Contender {
 public:
  DriveLimit(const Bench& bench, std::uint64_t block, unsigned depth)
      : bench_(bench), block_(block), depth_(depth) {}

  [[nodiscard]] std::string name() const override { return "drive_limit"; }

  [[nodiscard]] nlohmann::json parameters() const override {
    return {{"block_bytes", block_}, {"depth", depth_}};
  }

  [[nodiscard]] std::string refusal(const Case& what) const override {
    if (what.place->in_memory) {
      return "there is no drive";
    }
    if (what.state == State::cached) {
      return "the drive is not asked for cached files";
    }
    return what.size < block_ ? "less than one block" : "";
  }

  [[nodiscard]] bool moves_contents() const override { return false; }

  nlohmann::json run(const Case& what) override {
    if (ring_ == nullptr) {
      ring_ = std::make_unique<Ring>(depth_, bench_.pinned, block_);
    }
    const bool writing = what.direction == Direction::recv;
    const Descriptor file(writing ? what.place->target() : what.place->source(),
                          O_DIRECT | (writing ? O_WRONLY : O_RDONLY));
    if (writing && fallocate(file.get(), 0, 0, static_cast<off_t>(what.size)) != 0) {
      throw std::system_error(errno, std::generic_category(), "fallocate");
    }
    pump(what, file.get());
    if (writing && fdatasync(file.get()) != 0) {
      throw std::system_error(errno, std::generic_category(), "fdatasync");
    }
    return nullptr;
  }

  [[nodiscard]] double expected_rate(const Case& what) const override {
    return expected_copy_rate(what, 0);
  }

 private:
  static std::vector<Extent> parts(const Case& what) {
    return what.direction == Direction::recv ? std::vector<Extent>{{0, what.size}} : what.cold();
  }

  void pump(const Case& what, int fd) {
    std::vector<Extent> blocks;
    for (const Extent& part : parts(what)) {
      for (std::uint64_t at = part.offset; at < part.end(); at += block_) {
        blocks.push_back({at, std::min(block_, part.end() - at)});
      }
    }
    std::vector<std::uint64_t> expected(depth_);
    std::size_t next = 0;
    std::size_t in_flight = 0;
    const auto submit = [&](unsigned slot) {
      expected[slot] = blocks[next].size;
      ring_->submit(what.direction, fd, slot, blocks[next++]);
      ++in_flight;
    };
    while (next < blocks.size() && in_flight < depth_) {
      submit(static_cast<unsigned>(in_flight));
    }
    while (in_flight > 0) {
      const auto [slot, result] = ring_->wait();
      --in_flight;
      if (result != static_cast<int>(expected[slot])) {
        throw std::runtime_error("drive_limit: a request returned " + std::to_string(result));
      }
      if (next < blocks.size()) {
        submit(slot);
      }
    }
  }

  Bench bench_;
  std::uint64_t block_;
  unsigned depth_;
  std::unique_ptr<Ring> ring_;
};

}  // namespace

std::string_view direction_name(Direction direction) {
  return direction == Direction::send ? "send" : "recv";
}

std::string_view state_name(State state) {
  switch (state) {
    case State::cached:
      return "cached";
    case State::cold:
      return "cold";
    case State::half_cached:
      return "half_cached";
    case State::striped:
      return "striped";
    case State::empty_file:
      return "empty_file";
  }
  return "?";
}

std::vector<Extent> Case::cached() const {
  std::vector<Extent> extents;
  if (state == State::cached) {
    extents.push_back({0, size});
  } else if (state == State::half_cached) {
    extents.push_back({0, size / 2});
  } else if (state == State::striped) {
    for (std::uint64_t at = 0; at < size; at += 2 * stripe_size) {
      extents.push_back({at, std::min(stripe_size, size - at)});
    }
  }
  return extents;
}

std::vector<Extent> Case::cold() const {
  std::vector<Extent> extents;
  if (state == State::cold) {
    extents.push_back({0, size});
  } else if (state == State::half_cached) {
    extents.push_back({size / 2, size - size / 2});
  } else if (state == State::striped) {
    for (std::uint64_t at = stripe_size; at < size; at += 2 * stripe_size) {
      extents.push_back({at, std::min(stripe_size, size - at)});
    }
  }
  return extents;
}

double expected_copy_rate(const Case& what, double cached_rate) {
  if (what.direction == Direction::recv) {
    return what.place->in_memory ? std::min(cached_rate, 3e9) : expected_drive_rate;
  }
  switch (what.state) {
    case State::cold:
      return expected_drive_rate;
    case State::half_cached:
    case State::striped:
      return 2 * expected_drive_rate;
    default:
      return cached_rate;
  }
}

void add_limits(Contenders& to, const Bench& bench, Effort effort) {
  to.push_back(std::make_unique<LinkLimit>(bench));

  struct Variant {
    std::uint64_t block;
    unsigned depth;
  };

  std::vector<Variant> variants = {{4 * mebibyte, 2}, {4 * mebibyte, 8}, {mebibyte / 2, 4}};
  if (effort == Effort::full) {
    variants.push_back({mebibyte / 2, 8});
    variants.push_back({mebibyte, 2});
    variants.push_back({mebibyte, 8});
    variants.push_back({4 * mebibyte, 32});
    variants.push_back({mebibyte, 64});
  }
  for (const Variant& variant : variants) {
    to.push_back(std::make_unique<DriveLimit>(bench, variant.block, variant.depth));
  }
}

}  // namespace bench
