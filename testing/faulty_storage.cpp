// The wrappers that follow a FaultPlan: FaultyStorage, FaultyFile, FaultyQueue.
#include "testing/faulty_storage.hpp"

#include "storage/pieces.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <thread>

namespace hippogriff {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds hold_max{60};
constexpr std::chrono::milliseconds poll_interval{1};
constexpr unsigned char spoilt_byte = 0xDB;

// Cuts a file that may be open for reading alone.
void cut_file(const File& file, std::uint64_t size) {
  const std::string link = "/proc/self/fd/" + std::to_string(file.fd());
  if (::truncate(link.c_str(), static_cast<off_t>(size)) != 0) {
    throw_io("truncate for a test", link, size, errno);
  }
}

// Carries out what happens around a call: throws, waits, cuts. Shortening is the call's own.
void suffer(const Fault& fault,
            const FaultPlan& plan,
            const char* operation,
            File* file,
            std::uint64_t offset) {
  const auto begin = Clock::now();
  switch (fault.kind) {
    case FaultKind::error:
      throw_io(operation,
               file == nullptr ? "faulty storage" : file->facts().path,
               offset,
               fault.errno_value);
    case FaultKind::delay:
      std::this_thread::sleep_for(fault.delay);
      return;
    case FaultKind::hold:
      while (!plan.released() && Clock::now() - begin < hold_max) {
        std::this_thread::sleep_for(poll_interval);
      }
      return;
    case FaultKind::truncate_file:
      if (file != nullptr) {
        cut_file(*file, fault.bytes);
      }
      return;
    case FaultKind::shorten:
    case FaultKind::residency_unknown:
    case FaultKind::residency_wrong:
      return;
  }
}

// What of `count` bytes is told; the bytes that are not told are spoilt, so that nobody uses them.
std::size_t shortened(const std::optional<Fault>& fault,
                      std::span<const iovec> memory,
                      std::size_t count) {
  if (!fault || fault->kind != FaultKind::shorten || count <= fault->bytes) {
    return count;
  }
  const auto kept = static_cast<std::size_t>(fault->bytes);
  for (const iovec& rest : part_of(memory, kept, count - kept)) {
    std::memset(rest.iov_base, spoilt_byte, rest.iov_len);
  }
  return kept;
}

class FaultyFile final : public File {
 public:
  FaultyFile(std::shared_ptr<File> file, std::shared_ptr<FaultPlan> plan)
      : file_(std::move(file)), plan_(std::move(plan)) {}

  [[nodiscard]] const FileFacts& facts() const override { return file_->facts(); }

  [[nodiscard]] FileIdentity identity() const override { return file_->identity(); }

  [[nodiscard]] int fd() const override { return file_->fd(); }

  [[nodiscard]] int direct_fd() const override { return file_->direct_fd(); }

  [[nodiscard]] std::size_t read(std::span<std::byte> to, std::uint64_t offset) override {
    const auto fault = meet(FaultPoint::read, "read", offset, to.size());
    const iovec piece{to.data(), to.size()};
    return shortened(fault, {&piece, 1}, file_->read(to, offset));
  }

  [[nodiscard]] std::optional<std::size_t> read_cached_pieces(std::span<const iovec> to,
                                                              std::uint64_t offset,
                                                              PageCache expected) override {
    const auto fault = meet(FaultPoint::read_cached, "read cached", offset, size_of(to));
    if (expected == PageCache::probable) {
      static_cast<void>(plan_->strike(FaultPoint::read_unasked, offset));
    }
    const auto count = file_->read_cached_pieces(to, offset, expected);
    return count ? std::optional(shortened(fault, to, *count)) : std::nullopt;
  }

  [[nodiscard]] std::size_t write(std::span<const std::byte> from, std::uint64_t offset) override {
    const auto fault = meet(FaultPoint::write, "write", offset, from.size());
    if (fault && fault->kind == FaultKind::shorten) {
      from = from.first(std::min<std::size_t>(from.size(), fault->bytes));
    }
    return file_->write(from, offset);
  }

  [[nodiscard]] std::optional<Residency> residency(Range range) override {
    const auto fault = meet(FaultPoint::residency, "residency", range.offset, 0);
    if (fault && fault->kind == FaultKind::residency_unknown) {
      return std::nullopt;
    }
    auto answer = file_->residency(range);
    if (answer && fault && fault->kind == FaultKind::residency_wrong) {
      answer->resident_bytes =
          static_cast<std::uint64_t>(fault->fraction * static_cast<double>(answer->total_bytes));
    }
    return answer;
  }

  [[nodiscard]] std::uint64_t size_now() override {
    meet(FaultPoint::size, "size", no_offset, 0);
    return file_->size_now();
  }

  void allocate(Range range) override {
    meet(FaultPoint::allocate, "allocate", range.offset, 0);
    file_->allocate(range);
  }

  void truncate(std::uint64_t size) override {
    meet(FaultPoint::truncate, "truncate", size, 0);
    file_->truncate(size);
  }

  void sync() override {
    meet(FaultPoint::sync, "sync", no_offset, 0);
    file_->sync();
  }

  void begin_write_back(Range range) noexcept override {
    static_cast<void>(plan_->strike(FaultPoint::write_back, range.offset));
    file_->begin_write_back(range);
  }

  void begin_read_ahead(Range range) noexcept override {
    static_cast<void>(plan_->strike(FaultPoint::read_ahead, range.offset));
    file_->begin_read_ahead(range);
  }

  [[nodiscard]] std::span<std::byte> map(Range range, FileAccess access) override {
    meet(FaultPoint::map, "map", range.offset, 0);
    return file_->map(range, access);
  }

  void unmap(std::span<std::byte> mapping) noexcept override { file_->unmap(mapping); }

 private:
  std::optional<Fault> meet(FaultPoint point,
                            const char* operation,
                            std::uint64_t offset,
                            std::uint64_t size) {
    const auto fault = plan_->strike(point, offset, size);
    if (fault) {
      suffer(*fault, *plan_, operation, file_.get(), offset);
    }
    return fault;
  }

  std::shared_ptr<File> file_;
  std::shared_ptr<FaultPlan> plan_;
};

class FaultyQueue final : public IoQueue {
 public:
  FaultyQueue(std::unique_ptr<IoQueue> queue, std::shared_ptr<FaultPlan> plan)
      : queue_(std::move(queue)), plan_(std::move(plan)) {}

  void submit(const IoRequest& request) override { pass_on(request, &IoQueue::submit); }

  void prepare(const IoRequest& request) override { pass_on(request, &IoQueue::prepare); }

  void submit_prepared() override { queue_->submit_prepared(); }

  std::size_t reap(std::span<IoCompletion> completions, std::chrono::nanoseconds timeout) override;

  [[nodiscard]] std::size_t in_flight() const override {
    return queue_->in_flight() + withheld_.size();
  }

 private:
  struct Pending {
    IoRequest request;
    std::vector<iovec> pieces;
    std::optional<Fault> fault;
  };

  // Done, but not told yet.
  struct Withheld {
    IoCompletion completion;
    Clock::time_point told_at;
    bool held = false;
  };

  using Begin = void (IoQueue::*)(const IoRequest&);
  void pass_on(const IoRequest& request, Begin begin);
  void withhold(const IoCompletion& completion, const std::optional<Fault>& fault);
  void collect(std::chrono::nanoseconds timeout);
  std::size_t tell(std::span<IoCompletion> completions);

  std::unique_ptr<IoQueue> queue_;
  std::shared_ptr<FaultPlan> plan_;
  std::map<std::uint64_t, Pending> pending_;  // by the tag that the inner queue sees
  std::uint64_t next_tag_ = 0;
  std::deque<Withheld> withheld_;
};

void FaultyQueue::withhold(const IoCompletion& completion, const std::optional<Fault>& fault) {
  Withheld entry{completion, Clock::now(), false};
  if (fault && fault->kind == FaultKind::delay) {
    entry.told_at += fault->delay;
  }
  entry.held = fault && fault->kind == FaultKind::hold;
  withheld_.push_back(entry);
}

void FaultyQueue::pass_on(const IoRequest& request, Begin begin) {
  if (const auto fault = plan_->strike(FaultPoint::submit)) {
    suffer(*fault, *plan_, "submit", nullptr, request.offset);
  }
  const FaultPoint point =
      request.kind == IoRequest::Kind::read ? FaultPoint::queued_read : FaultPoint::queued_write;
  const std::size_t size = request.pieces.empty() ? request.memory.size() : size_of(request.pieces);
  const auto fault = plan_->strike(point, request.offset, size);
  if (fault && fault->kind == FaultKind::error) {
    withhold({request.tag, -std::int64_t{fault->errno_value}}, fault);
    return;
  }
  if (fault && fault->kind == FaultKind::truncate_file) {
    cut_file(*request.file, fault->bytes);
  }
  IoRequest inner = request;
  inner.tag = next_tag_++;
  (queue_.get()->*begin)(inner);
  pending_.emplace(inner.tag,
                   Pending{request, {request.pieces.begin(), request.pieces.end()}, fault});
}

// Takes what the inner queue has done, waiting for the first up to the timeout.
void FaultyQueue::collect(std::chrono::nanoseconds timeout) {
  std::array<IoCompletion, 16> batch{};
  const std::size_t count = queue_->reap(batch, timeout);
  for (std::size_t i = 0; i < count; ++i) {
    const auto found = pending_.find(batch[i].tag);
    HIPPO_ASSERT(found != pending_.end());
    const Pending& pending = found->second;
    IoCompletion completion{pending.request.tag, batch[i].result};
    const bool shorten = pending.fault && pending.fault->kind == FaultKind::shorten;
    if (shorten && completion.result > 0) {
      const auto kept = std::min<std::uint64_t>(pending.fault->bytes,
                                                static_cast<std::uint64_t>(completion.result));
      if (pending.request.kind == IoRequest::Kind::read) {
        const iovec memory{pending.request.memory.data(), pending.request.memory.size()};
        shortened(pending.fault,
                  pending.pieces.empty() ? std::span(&memory, 1) : std::span(pending.pieces),
                  static_cast<std::size_t>(completion.result));
      }
      completion.result = static_cast<std::int64_t>(kept);
    }
    withhold(completion, pending.fault);
    pending_.erase(found);
  }
}

std::size_t FaultyQueue::tell(std::span<IoCompletion> completions) {
  std::size_t count = 0;
  const auto now = Clock::now();
  const bool released = plan_->released();
  for (auto entry = withheld_.begin(); entry != withheld_.end() && count < completions.size();) {
    if (entry->told_at <= now && (released || !entry->held)) {
      completions[count++] = entry->completion;
      entry = withheld_.erase(entry);
    } else {
      ++entry;
    }
  }
  return count;
}

std::size_t FaultyQueue::reap(std::span<IoCompletion> completions,
                              std::chrono::nanoseconds timeout) {
  if (const auto fault = plan_->strike(FaultPoint::reap)) {
    suffer(*fault, *plan_, "reap", nullptr, no_offset);
  }
  if (completions.empty()) {
    return 0;
  }
  const auto begin = Clock::now();
  for (;;) {
    collect(std::chrono::nanoseconds(0));
    const std::size_t count = tell(completions);
    const auto left = timeout - (Clock::now() - begin);
    if (count > 0 || in_flight() == 0 || left <= std::chrono::nanoseconds(0)) {
      return count;
    }
    const auto pause = std::min<std::chrono::nanoseconds>(left, poll_interval);
    if (queue_->in_flight() > 0) {
      collect(withheld_.empty() ? left : pause);
    } else {
      std::this_thread::sleep_for(pause);
    }
  }
}

class FaultyStorage final : public Storage {
 public:
  FaultyStorage(std::shared_ptr<Storage> storage, std::shared_ptr<FaultPlan> plan)
      : storage_(std::move(storage)), plan_(std::move(plan)) {}

  [[nodiscard]] std::shared_ptr<File> open(const std::string& path, FileAccess access) override {
    meet(FaultPoint::open, "open");
    return wrap(storage_->open(path, access));
  }

  [[nodiscard]] std::shared_ptr<File> adopt(int fd, FileAccess access) override {
    meet(FaultPoint::open, "use descriptor");
    return wrap(storage_->adopt(fd, access));
  }

  [[nodiscard]] std::shared_ptr<File> borrow(int fd, FileAccess access) override {
    meet(FaultPoint::open, "use descriptor");
    return wrap(storage_->borrow(fd, access));
  }

  [[nodiscard]] std::shared_ptr<File> adopt_as(int fd,
                                               FileAccess access,
                                               const std::string& path) override {
    meet(FaultPoint::open, "use descriptor");
    return wrap(storage_->adopt_as(fd, access, path));
  }

  [[nodiscard]] std::shared_ptr<File> create(const std::string& path) override {
    meet(FaultPoint::open, "create");
    return wrap(storage_->create(path));
  }

  void rename(const std::string& from, const std::string& to) override {
    meet(FaultPoint::rename, "rename");
    storage_->rename(from, to);
  }

  [[nodiscard]] bool name(const File& unnamed, const std::string& path) override {
    meet(FaultPoint::rename, "name");
    return storage_->name(unnamed, path);
  }

  void remove(const std::string& path) noexcept override { storage_->remove(path); }

  [[nodiscard]] std::unique_ptr<IoQueue> create_queue(std::size_t depth) override {
    meet(FaultPoint::create_queue, "create I/O queue");
    return std::make_unique<FaultyQueue>(storage_->create_queue(depth), plan_);
  }

  [[nodiscard]] std::string queue_kind() override { return storage_->queue_kind(); }

  [[nodiscard]] std::string why_no_registered_buffers() override {
    return storage_->why_no_registered_buffers();
  }

 private:
  void meet(FaultPoint point, const char* operation) {
    if (const auto fault = plan_->strike(point)) {
      suffer(*fault, *plan_, operation, nullptr, no_offset);
    }
  }

  std::shared_ptr<File> wrap(std::shared_ptr<File> file) {
    return std::make_shared<FaultyFile>(std::move(file), plan_);
  }

  std::shared_ptr<Storage> storage_;
  std::shared_ptr<FaultPlan> plan_;
};

}  // namespace

std::shared_ptr<Storage> make_faulty_storage(std::shared_ptr<Storage> storage,
                                             std::shared_ptr<FaultPlan> plan) {
  return std::make_shared<FaultyStorage>(std::move(storage), std::move(plan));
}

}  // namespace hippogriff
