// Sequences of transfers, cancellations and faults decoded from bytes, on one small runtime,
// against what pread and pwrite would have done. A report of missing bytes must be exact to the
// byte.
#include "device/host_device.hpp"
#include "testing/faulty_device.hpp"
#include "testing/faulty_storage.hpp"
#include "transfer/runtime.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::size_t file_bytes = (std::size_t{256} << 10) - 13;
constexpr std::size_t slots = 3;  // each with device memory and at most one transfer
constexpr std::size_t operations_max = 24;
constexpr std::chrono::milliseconds no_hang{20'000};

// The input's bytes, and zeros after them.
class Bytes {
 public:
  explicit Bytes(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool empty() const { return bytes_.empty(); }

  std::uint8_t next() {
    if (bytes_.empty()) {
      return 0;
    }
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

  // Below `bound`, of two or three bytes so that odd values come up.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t value =
        std::uint64_t{next()} | (std::uint64_t{next()} << 8U) | (std::uint64_t{next()} << 16U);
    return value % bound;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

// A file in memory with a name that can be opened.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("hippogriff-fuzz", MFD_CLOEXEC)) { HIPPO_ASSERT(fd_ >= 0); }

  ~MemoryFile() { close(fd_); }

  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void fill() {
    static const std::vector<std::byte> pattern = [] {
      std::vector<std::byte> bytes(file_bytes);
      for (std::size_t index = 0; index < file_bytes; ++index) {
        bytes[index] = static_cast<std::byte>((index * 131 + index / 251) & 0xFFU);
      }
      return bytes;
    }();
    content = pattern;
    HIPPO_ASSERT(ftruncate(fd_, file_bytes) == 0);
    HIPPO_ASSERT(pwrite(fd_, content.data(), file_bytes, 0) == static_cast<ssize_t>(file_bytes));
  }

  std::vector<std::byte> read_all() const {
    std::vector<std::byte> bytes(file_bytes);
    HIPPO_ASSERT(pread(fd_, bytes.data(), file_bytes, 0) == static_cast<ssize_t>(file_bytes));
    return bytes;
  }

  [[nodiscard]] int fd() const { return fd_; }

  std::vector<std::byte> content;

 private:
  const int fd_;
};

struct SlotState {
  DeviceAddress memory;
  MemoryFile file;
  std::shared_ptr<Transfer> transfer;
  std::vector<std::byte> expected_memory;  // before the transfer
};

Settings small_settings() {
  Settings settings;
  settings.pinbuffer_bytes = std::uint64_t{64} << 20;
  settings.parking_bytes = std::uint64_t{8} << 20;
  settings.threads_max = 3;
  settings.memory_timeout = std::chrono::milliseconds(50);
  return settings;
}

// Lives as long as the process: starting threads costs more than a transfer.
class Machine {
 public:
  Machine() {
    HostDeviceOptions options;
    options.memory_bytes = std::uint64_t{16} << 20;
    options.link_bytes_per_second = 100e9;
    device_ = make_faulty_device(make_host_device(options), device_faults_);
    runtime_ = std::make_unique<Runtime>(small_settings(),
                                         make_faulty_storage(make_system_storage(), plan_),
                                         std::vector<std::shared_ptr<Device>>{device_});
    for (SlotState& slot : slots_) {
      slot.memory = runtime_->device("").allocate(file_bytes);
    }
  }

  void run(Bytes bytes) {
    const std::uint8_t salt = bytes.next();
    for (SlotState& slot : slots_) {
      slot.file.fill();
      slot.expected_memory.assign(file_bytes, static_cast<std::byte>(salt ^ 0xA5U));
      std::memcpy(memory_of(slot), slot.expected_memory.data(), file_bytes);
    }
    for (std::size_t count = 0; count < operations_max && !bytes.empty(); ++count) {
      operate(bytes);
    }
    for (SlotState& slot : slots_) {
      end(slot);
    }
    plan_->clear();
    device_faults_->clear();
    HIPPO_ASSERT(runtime_->device("").engine->parked_bytes() == 0);
    HIPPO_ASSERT(device_faults_->wait_until_unregistered(std::chrono::seconds(10)));
    HIPPO_ASSERT(device_faults_->outstanding().allocations == slots);
  }

 private:
  static std::byte* memory_of(const SlotState& slot) {
    return reinterpret_cast<std::byte*>(slot.memory.value);
  }

  void operate(Bytes& bytes) {
    const std::uint8_t what = bytes.next();
    SlotState& slot = slots_.at(what / 16 % slots);
    switch (what % 8) {
      case 0:
      case 1:
        return start(slot, Direction::send, bytes);
      case 2:
      case 3:
        return start(slot, Direction::recv, bytes);
      case 4:
        return slot.transfer != nullptr ? slot.transfer->cancel() : void();
      case 5:
        return end(slot);
      case 6:
        return plan_->add(storage_fault(bytes));
      default:
        return add_device_fault(bytes);
    }
  }

  void start(SlotState& slot, Direction direction, Bytes& bytes) {
    end(slot);
    const std::array routes = {Route::automatic, Route::pipelined, Route::mapped, Route::parked};
    Submission submission{.direction = direction,
                          .fd = slot.file.fd(),
                          .offset = bytes.below(file_bytes),
                          .route = routes.at(bytes.next() % routes.size())};
    submission.size = 1 + bytes.below(file_bytes - submission.offset);
    submission.address = slot.memory + submission.offset;
    try {
      slot.transfer = runtime_->submit(submission);
    } catch (const Error& error) {
      HIPPO_ASSERT(error.failure().status != Status::internal);
    }
  }

  // Waits for the slot's transfer and compares: what is not missing has moved, all else is as
  // before.
  void end(SlotState& slot) {
    if (slot.transfer == nullptr) {
      return;
    }
    HIPPO_ASSERT(slot.transfer->wait(no_hang));
    const Transfer& transfer = *slot.transfer;
    HIPPO_ASSERT(transfer.status() != Status::internal);
    HIPPO_ASSERT(transfer.failed() || transfer.missing().empty());
    const Range extent = transfer.request().extent;
    RangeSet missing;
    for (const Range& range : transfer.missing()) {
      missing.insert(range);
    }
    const bool sends = transfer.request().direction == Direction::send;
    std::vector<std::byte>& target = sends ? slot.expected_memory : slot.file.content;
    const std::vector<std::byte>& source = sends ? slot.file.content : slot.expected_memory;
    std::vector<std::byte> now(file_bytes);
    if (sends) {
      std::memcpy(now.data(), memory_of(slot), file_bytes);
    } else {
      now = slot.file.read_all();
    }
    for (const Range& there : missing.missing_from(extent)) {
      HIPPO_ASSERT(
          std::memcmp(now.data() + there.offset, source.data() + there.offset, there.size) == 0);
    }
    HIPPO_ASSERT(std::memcmp(now.data(), target.data(), extent.offset) == 0);
    HIPPO_ASSERT(std::memcmp(now.data() + extent.end(),
                             target.data() + extent.end(),
                             file_bytes - extent.end()) == 0);
    target = std::move(now);
    slot.transfer.reset();
  }

  static Fault storage_fault(Bytes& bytes) {
    const std::array points = {FaultPoint::read,
                               FaultPoint::write,
                               FaultPoint::queued_read,
                               FaultPoint::queued_write,
                               FaultPoint::residency,
                               FaultPoint::map,
                               FaultPoint::submit,
                               FaultPoint::size};
    const std::array errors = {EIO, EAGAIN, EINVAL, ENOSPC};
    Fault fault{.point = points.at(bytes.next() % points.size()),
                .after = bytes.next() % 4U,
                .times = 1 + bytes.next() % 4U};
    const std::uint8_t kind = bytes.next();
    fault.errno_value = errors.at(kind / 4 % errors.size());
    if (fault.point == FaultPoint::residency) {
      fault.kind = kind % 4 == 0 ? FaultKind::residency_unknown : FaultKind::residency_wrong;
      fault.fraction = static_cast<double>(kind % 4) / 3;
    } else if (kind % 4 == 1) {
      fault.kind = FaultKind::shorten;
      fault.bytes = 1 + bytes.below(file_bytes);
    }
    return fault;
  }

  void add_device_fault(Bytes& bytes) {
    const std::array operations = {DeviceOperation::copy_to_device,
                                   DeviceOperation::copy_to_host,
                                   DeviceOperation::register_host,
                                   DeviceOperation::create_event,
                                   DeviceOperation::record,
                                   DeviceOperation::completed};
    const DeviceOperation operation = operations.at(bytes.next() % operations.size());
    const std::uint8_t how = bytes.next();
    const std::uint64_t nth = 1 + how / 8 % 4U;
    const bool copies =
        operation == DeviceOperation::copy_to_device || operation == DeviceOperation::copy_to_host;
    if (how % 4 == 1 && copies) {
      device_faults_->fail_later(operation, nth, some_device_failure(operation));
    } else if (how % 4 == 2) {
      device_faults_->delay(operation, nth, std::chrono::microseconds(200), 2);
    } else {
      device_faults_->fail(operation, nth, some_device_failure(operation));
    }
  }

  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  const std::shared_ptr<DeviceFaults> device_faults_ = std::make_shared<DeviceFaults>();
  std::shared_ptr<Device> device_;
  std::unique_ptr<Runtime> runtime_;
  std::array<SlotState, slots> slots_;
};

}  // namespace
}  // namespace hippogriff

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Never destroyed: its threads run to the end of the process.
  static auto* const machine = new hippogriff::Machine;
  machine->run(hippogriff::Bytes({data, size}));
  return 0;
}
