// Read, copy, wait: nothing else.
#include "transfer/small_path.hpp"

#include "transfer/lanes.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace hippogriff {

namespace {

// Files whose offsets mean what they say: others are for the engine to look at, and to refuse.
bool is_plain(int fd, bool writes) {
  struct stat status{};
  if (fstat(fd, &status) != 0 || !(S_ISREG(status.st_mode) || S_ISBLK(status.st_mode))) {
    return false;
  }
  return !writes || (fcntl(fd, F_GETFL) & O_APPEND) == 0;
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

  // Where the file's bytes go or come from: the device's own memory where the host can reach it.
  [[nodiscard]] std::byte* memory(const SmallTransfer& transfer) const {
    if (in_place()) {
      return reinterpret_cast<std::byte*>(
          transfer.address.value);  // NOLINT(performance-no-int-to-ptr)
    }
    return channel_->memory;
  }

  [[nodiscard]] bool in_place() const { return path_.device_->info().can.host_addressable; }

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
    return !in_place() || stream->idle() ? stream : nullptr;
  }

  // Most copies end at once: then asking the stream is all it takes. Others wait behind work of the
  // caller's, as long as that takes, or until the runtime ends.
  void finish(Stream& stream, const char* operation) {
    const auto begin = Clock::now();
    bool done = stream.idle();
    while (!done && Clock::now() - begin < spin_time) {
      done = stream.idle();
    }
    if (!done) {
      stream.record(*channel_->copied);
      while (!wait_for(*channel_->copied, std::chrono::milliseconds(100))) {
        if (path_.stopping_) {
          throw Error({.status = Status::cancelled,
                       .operation = operation,
                       .object = path_.device_->info().name});
        }
      }
    }
    copying_ = nullptr;
  }

  void set_copying(Stream& stream) { copying_ = &stream; }

 private:
  static constexpr std::chrono::microseconds spin_time{60};

  SmallPath& path_;
  Channel* channel_;
  std::unique_ptr<Stream> borrowed_;
  Stream* copying_ = nullptr;  // on which a copy may be under way
};

SmallPath::SmallPath(std::shared_ptr<Device> device) : device_(std::move(device)) {}

SmallPath::~SmallPath() {
  for (const Channel* channel : free_) {
    device_->release_pinned(channel->memory);
  }
}

SmallPath::Channel* SmallPath::acquire() {
  std::unique_lock lock(mutex_);
  if (free_.empty() && channels_reserved_ < channels_max) {
    ++channels_reserved_;
    lock.unlock();
    auto channel = std::make_unique<Channel>();
    try {
      channel->stream = device_->create_stream();
      channel->default_stream = device_->borrow_stream(nullptr);
      channel->copied = device_->create_event();
      channel->memory = device_->allocate_pinned(size_bytes_max);
    } catch (...) {
      lock.lock();
      --channels_reserved_;
      throw;
    }
    lock.lock();
    channels_.push_back(std::move(channel));
    return channels_.back().get();
  }
  if (lost_ == channels_max) {
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
  if (!is_plain(transfer.fd, false)) {
    return false;
  }
  const DeviceScope scope(*device_);
  Lease lease(*this);
  if (lease.empty()) {
    return false;
  }
  Stream* stream = lease.stream_for(transfer);
  if (stream == nullptr) {
    return false;
  }
  const ssize_t got = pread(transfer.fd,
                            lease.memory(transfer),
                            transfer.size_bytes,
                            static_cast<off_t>(transfer.offset));
  if (got != static_cast<ssize_t>(transfer.size_bytes)) {
    return false;
  }
  if (!lease.in_place()) {
    lease.set_copying(*stream);
    stream->copy_to_device(transfer.address, lease.memory(transfer), transfer.size_bytes);
    lease.finish(*stream, "copy to device");
  }
  return true;
}

bool SmallPath::recv(const SmallTransfer& transfer) {
  if (!is_plain(transfer.fd, true)) {
    return false;
  }
  const DeviceScope scope(*device_);
  Lease lease(*this);
  if (lease.empty()) {
    return false;
  }
  Stream* stream = lease.stream_for(transfer);
  if (stream == nullptr) {
    return false;
  }
  if (!lease.in_place()) {
    lease.set_copying(*stream);
    stream->copy_to_host(lease.memory(transfer), transfer.address, transfer.size_bytes);
    lease.finish(*stream, "copy to host");
  }
  const ssize_t put = pwrite(transfer.fd,
                             lease.memory(transfer),
                             transfer.size_bytes,
                             static_cast<off_t>(transfer.offset));
  return put == static_cast<ssize_t>(transfer.size_bytes);
}

std::uint64_t SmallPath::pinned_bytes() const {
  const std::lock_guard lock(mutex_);
  return channels_.size() * size_bytes_max;
}

}  // namespace hippogriff
