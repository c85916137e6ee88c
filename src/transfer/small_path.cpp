// Read, copy, wait: nothing else.
#include "transfer/small_path.hpp"

#include "base/size_limit.hpp"
#include "transfer/lanes.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

namespace hippogriff {

namespace {

// Files whose offsets mean what they say and in which an extent up to `end` has room, which writing
// makes in a regular one: others are for the engine to look at, and to refuse.
bool is_plain(int fd, std::uint64_t end, Direction direction) {
  struct stat status{};
  if (fstat(fd, &status) != 0) {
    return false;
  }
  if (S_ISREG(status.st_mode)) {
    return direction == Direction::recv || static_cast<std::uint64_t>(status.st_size) >= end;
  }
  std::uint64_t size_bytes = 0;
  return S_ISBLK(status.st_mode) && ioctl(fd, BLKGETSIZE64, &size_bytes) == 0 && size_bytes >= end;
}

bool read_all(const SmallTransfer& transfer, Range range, std::byte* to) {
  const iovec part{to, range.size};
  // A file that is not in the page cache is read faster by several requests at once.
  const int flags = transfer.size_bytes > SmallPath::piece_bytes ? RWF_NOWAIT : 0;
  const ssize_t got = preadv2(transfer.fd, &part, 1, static_cast<off_t>(range.offset), flags);
  return got == static_cast<ssize_t>(range.size);
}

bool write_all(const SmallTransfer& transfer, Range range, const std::byte* from) {
  const SizeLimitScope size_limit;
  const ssize_t put = pwrite(transfer.fd, from, range.size, static_cast<off_t>(range.offset));
  return put == static_cast<ssize_t>(range.size);
}

std::size_t piece_count(const SmallTransfer& transfer) {
  return (transfer.size_bytes + SmallPath::piece_bytes - 1) / SmallPath::piece_bytes;
}

// Of the file.
Range piece_of(const SmallTransfer& transfer, std::size_t index) {
  const std::size_t begin = index * SmallPath::piece_bytes;
  return {transfer.offset + begin, std::min(SmallPath::piece_bytes, transfer.size_bytes - begin)};
}

DeviceAddress address_of(const SmallTransfer& transfer, Range piece) {
  return transfer.address + (piece.offset - transfer.offset);
}

}  // namespace

// A channel for one transfer. It goes back unless its copy may still be under way.
class SmallPath::Lease {
 public:
  explicit Lease(SmallPath& path) : path_(path), channel_(path.acquire()) {}

  ~Lease() {
    if (channel_ != nullptr) {
      path_.release(channel_, copying_ == nullptr || drain(*copying_));
    }
  }

  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  [[nodiscard]] bool empty() const { return channel_ == nullptr; }

  [[nodiscard]] std::uint32_t track() const { return channel_->track; }

  // The device's own memory, where the host can reach it; else nullptr.
  [[nodiscard]] std::byte* in_place(const SmallTransfer& transfer) const {
    return path_.device_->info().can.host_addressable
               ? reinterpret_cast<std::byte*>(
                     transfer.address.value)  // NOLINT(performance-no-int-to-ptr)
               : nullptr;
  }

  // The stream to copy on; nullptr when the caller's has work that the host would have to wait for
  // before it touches the memory itself.
  Stream* stream_for(const SmallTransfer& transfer) {
    if (!transfer.after_stream) {
      return channel_->stream.get();
    }
    Stream* stream = channel_->default_stream.get();
    if (transfer.stream != nullptr) {
      borrowed_ = path_.device_->borrow_stream(transfer.stream);
      stream = borrowed_.get();
    }
    return in_place(transfer) == nullptr || stream->idle() ? stream : nullptr;
  }

  [[nodiscard]] std::byte* slot(std::size_t index) const {
    return channel_->memory + (index % slots) * piece_bytes;
  }

  void copy_to_device(Stream& stream, DeviceAddress to, std::size_t index, std::size_t size_bytes) {
    copying_ = &stream;
    stream.copy_to_device(to, slot(index), size_bytes);
  }

  void copy_to_host(Stream& stream, std::size_t index, DeviceAddress from, std::size_t size_bytes) {
    copying_ = &stream;
    stream.copy_to_host(slot(index), from, size_bytes);
  }

  // Marks the slot's last copy, so that it can be waited for with more queued behind it.
  void mark(Stream& stream, std::size_t index) { stream.record(copied(index)); }

  void wait_for_slot(std::size_t index, const char* operation) {
    Event& event = copied(index);
    if (!spin([&event] { return event.completed(); })) {
      wait_patiently(event, operation);
    }
  }

  // Until all is copied. Most copies end at once: then asking the stream is all it takes.
  void finish(Stream& stream, const char* operation) {
    if (!spin([&stream] { return stream.idle(); })) {
      stream.record(copied(0));
      wait_patiently(copied(0), operation);
    }
    copying_ = nullptr;
  }

 private:
  static constexpr std::chrono::microseconds spin_time{60};

  [[nodiscard]] Event& copied(std::size_t index) const { return *channel_->copied[index % slots]; }

  template <typename Done>
  static bool spin(Done&& done) {
    if (done()) {
      return true;
    }
    const auto end = Clock::now() + spin_time;
    while (Clock::now() < end) {
      if (done()) {
        return true;
      }
    }
    return false;
  }

  // Behind work of the caller's, as long as that takes, or until the runtime ends.
  void wait_patiently(Event& event, const char* operation) {
    while (!wait_for(event, std::chrono::milliseconds(100))) {
      if (path_.stopping_) {
        throw Error({.status = Status::cancelled,
                     .operation = operation,
                     .object = path_.device_->info().name});
      }
    }
  }

  SmallPath& path_;
  Channel* channel_;
  std::unique_ptr<Stream> borrowed_;
  Stream* copying_ = nullptr;  // on which a copy may be under way
};

SmallPath::SmallPath(std::shared_ptr<Device> device, Trace* trace)
    : device_(std::move(device)), trace_(trace) {}

SmallPath::~SmallPath() {
  for (const Channel* channel : free_) {
    device_->release_pinned(channel->memory);
  }
}

void SmallPath::prepare() {
  {
    const std::lock_guard lock(mutex_);
    if (channels_reserved_ > 0) {
      return;
    }
  }
  if (Channel* channel = acquire(); channel != nullptr) {
    release(channel, true);
    return;
  }
  const std::lock_guard lock(mutex_);
  retry_at_ = {};  // nobody who needs one has failed
}

SmallPath::Channel* SmallPath::acquire() {
  std::unique_lock lock(mutex_);
  if (free_.empty() && channels_reserved_ < channels_max && Clock::now() >= retry_at_) {
    ++channels_reserved_;
    lock.unlock();
    auto channel = std::make_unique<Channel>();
    try {
      channel->stream = device_->create_stream();
      channel->default_stream = device_->borrow_stream(nullptr);
      for (auto& event : channel->copied) {
        event = device_->create_event();
      }
      channel->memory = device_->allocate_pinned(slots * piece_bytes);
      if (trace_ != nullptr) {
        channel->track = trace_->track(device_->info().name + " small transfers");
      }
    } catch (...) {
      // Short of threads or memory: the engine may have enough, or says what is wrong.
      lock.lock();
      --channels_reserved_;
      retry_at_ = Clock::now() + retry_time;
      return nullptr;
    }
    lock.lock();
    channels_.push_back(std::move(channel));
    return channels_.back().get();
  }
  if (lost_ == channels_max || channels_reserved_ == 0) {
    return nullptr;
  }
  if (!channel_free_.wait_for(lock, std::chrono::seconds(1), [this] { return !free_.empty(); })) {
    return nullptr;
  }
  Channel* channel = free_.back();
  free_.pop_back();
  return channel;
}

void SmallPath::release(Channel* channel, bool reusable) {
  const std::lock_guard lock(mutex_);
  if (!reusable) {
    ++lost_;
    return;
  }
  free_.push_back(channel);
  channel_free_.notify_one();
}

bool SmallPath::send(const SmallTransfer& transfer) {
  if (!is_plain(transfer.fd, transfer.offset + transfer.size_bytes, Direction::send)) {
    return false;
  }
  Lease lease(*this);
  if (lease.empty()) {
    return false;
  }
  static const SliceName name("small send");
  const TraceSlice slice(trace_, lease.track(), name, transfer.offset, transfer.size_bytes);
  Stream* stream = lease.stream_for(transfer);
  if (stream == nullptr) {
    return false;
  }
  if (std::byte* memory = lease.in_place(transfer)) {
    return read_all(transfer, {transfer.offset, transfer.size_bytes}, memory);
  }
  const std::size_t pieces = piece_count(transfer);
  for (std::size_t index = 0; index < pieces; ++index) {
    if (index >= slots) {
      lease.wait_for_slot(index, "copy to device");
    }
    const Range piece = piece_of(transfer, index);
    if (!read_all(transfer, piece, lease.slot(index))) {
      return false;
    }
    lease.copy_to_device(*stream, address_of(transfer, piece), index, piece.size);
    if (index + slots < pieces) {
      lease.mark(*stream, index);
    }
  }
  lease.finish(*stream, "copy to device");
  return true;
}

bool SmallPath::recv(const SmallTransfer& transfer) {
  if (!is_plain(transfer.fd, transfer.offset + transfer.size_bytes, Direction::recv) ||
      (fcntl(transfer.fd, F_GETFL) & O_APPEND) != 0) {
    return false;
  }
  Lease lease(*this);
  if (lease.empty()) {
    return false;
  }
  static const SliceName name("small recv");
  const TraceSlice slice(trace_, lease.track(), name, transfer.offset, transfer.size_bytes);
  Stream* stream = lease.stream_for(transfer);
  if (stream == nullptr) {
    return false;
  }
  if (const std::byte* memory = lease.in_place(transfer)) {
    return write_all(transfer, {transfer.offset, transfer.size_bytes}, memory);
  }
  const std::size_t pieces = piece_count(transfer);
  const auto fetch = [&](std::size_t index) {
    const Range piece = piece_of(transfer, index);
    lease.copy_to_host(*stream, index, address_of(transfer, piece), piece.size);
    if (index + 1 < pieces) {
      lease.mark(*stream, index);
    }
  };
  fetch(0);
  for (std::size_t index = 0; index < pieces; ++index) {
    if (index + 1 < pieces) {
      fetch(index + 1);
      lease.wait_for_slot(index, "copy to host");
    } else {
      lease.finish(*stream, "copy to host");
    }
    if (!write_all(transfer, piece_of(transfer, index), lease.slot(index))) {
      return false;
    }
  }
  return true;
}

std::uint64_t SmallPath::pinned_bytes() const {
  const std::lock_guard lock(mutex_);
  return channels_.size() * slots * piece_bytes;
}

}  // namespace hippogriff
