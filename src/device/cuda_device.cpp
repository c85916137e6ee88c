// The CUDA device behind the Device interface, and what is asked of CUDA without a device.
#include "device/cuda_device.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include "device/cuda_memory.hpp"
#include "device/cuda_pinned.hpp"
#include "device/cuda_registrar.hpp"
#include "device/cuda_stream.hpp"
#include "device/numa.hpp"

#include <array>
#include <cctype>

namespace hippogriff {
namespace {

// "GPU-" and 16 bytes in hexadecimal, in groups of 4, 2, 2, 2 and 6 bytes.
std::string format_uuid(const CUuuid& uuid) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t index = 0; index < sizeof uuid.bytes; ++index) {
    if (index == 4 || index == 6 || index == 8 || index == 10) {
      text += '-';
    }
    const auto byte = static_cast<unsigned char>(uuid.bytes[index]);
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

std::string pci_bus_id(const CudaGpu& gpu) {
  std::array<char, 32> text{};
  if (gpu.driver().device_get_pci_bus_id(
          text.data(), static_cast<int>(text.size()) - 1, gpu.device()) != CUDA_SUCCESS) {
    return {};
  }
  std::string bus_id(text.data());
  for (char& character : bus_id) {  // sysfs writes hexadecimal digits small
    character = static_cast<char>(std::tolower(static_cast<unsigned char>(character)));
  }
  return bus_id;
}

DeviceInfo describe(const CudaGpu& gpu, const std::filesystem::path& sysfs) {
  const CudaDriver& driver = gpu.driver();
  DeviceInfo info;
  info.name = gpu.name();
  std::array<char, 256> model{};
  gpu.check(driver.device_get_name(model.data(), static_cast<int>(model.size()) - 1, gpu.device()),
            "ask for the device's name");
  info.model = model.data();
  CUuuid uuid{};
  gpu.check(driver.device_get_uuid(&uuid, gpu.device()), "ask for the device's UUID");
  info.uuid = format_uuid(uuid);
  std::size_t memory_bytes = 0;
  gpu.check(driver.device_total_mem(&memory_bytes, gpu.device()),
            "ask for the device's memory size");
  info.memory_bytes = memory_bytes;
  info.numa_node = numa_node_of_pci_device(pci_bus_id(gpu), sysfs);
  const bool registers = gpu.attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) != 0;
  info.can.registers_read_only =
      registers && gpu.attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) != 0;
  info.can.registers_read_write = registers;
  info.can.registers_aside = info.can.registers_read_only;
  // Of the memory operations only the 64-bit ones still have an attribute; they imply ours.
  info.can.stream_wait_flag = gpu.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0;
  info.can.cuda_kernels = true;
  return info;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaDriver& driver, int index, const std::filesystem::path& sysfs)
      : context_(driver, index),
        info_(describe(context_, sysfs)),
        pinned_(context_, info_.numa_node),
        memory_(context_),
        registrar_(context_, index) {}

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }

  [[nodiscard]] DeviceMemory memory() override { return memory_.amount(); }

  [[nodiscard]] DeviceAddress allocate(std::size_t size_bytes) override {
    return memory_.allocate(size_bytes, CudaMemory::allocation_timeout);
  }

  [[nodiscard]] DeviceAddress allocate_now(std::size_t size_bytes) override {
    return memory_.allocate(size_bytes, std::chrono::nanoseconds(0));
  }

  void release(DeviceAddress address) noexcept override { memory_.release(address); }

  [[nodiscard]] std::optional<AllocationInfo> find(DeviceAddress address) override {
    return memory_.find(address);
  }

  [[nodiscard]] std::byte* allocate_pinned(std::size_t size_bytes) override {
    return pinned_.allocate(size_bytes);
  }

  void release_pinned(std::byte* memory) noexcept override { pinned_.release(memory); }

  void register_host(std::byte* memory, std::size_t size_bytes, HostAccess access) override {
    registrar_.register_host(memory, size_bytes, access);
  }

  void unregister_host(std::byte* memory) noexcept override { registrar_.unregister_host(memory); }

  [[nodiscard]] std::unique_ptr<Stream> create_stream() override {
    return std::make_unique<CudaStream>(context_);
  }

  [[nodiscard]] std::unique_ptr<Event> create_event() override {
    return std::make_unique<CudaEvent>(context_);
  }

  [[nodiscard]] std::unique_ptr<Stream> borrow_stream(void* native_handle) override {
    return std::make_unique<CudaStream>(context_, static_cast<CUstream>(native_handle));
  }

  [[nodiscard]] bool registers_aside(std::chrono::milliseconds patience) override {
    return registrar_.aside(patience);
  }

  [[nodiscard]] bool registers_aside_now() override { return registrar_.aside_now(); }

  void make_current() override {
    context_.check(context_.driver().ctx_set_current(context_.handle()), "make the device current");
    static_cast<void>(exchange_capture_mode(context_.driver(), CU_STREAM_CAPTURE_MODE_RELAXED));
  }

  [[nodiscard]] DeviceEntry enter() override { return enter_context(context_); }

  void leave(DeviceEntry entry) noexcept override { leave_context(context_, entry); }

 private:
  CudaContext context_;
  DeviceInfo info_;
  CudaPinned pinned_;  // after what waits for work that may still look at flags there
  CudaMemory memory_;
  CudaRegistrar registrar_;
};

// The driver, when it has the device.
const CudaDriver& driver_of(int index) {
  const CudaDriver* driver = cuda_driver();
  if (driver == nullptr) {
    throw_unsupported("open cuda:" + std::to_string(index), cuda_presence().why_not);
  }
  const int count = cuda_presence().device_count;
  if (index < 0 || index >= count) {
    throw_invalid("open",
                  "cuda:" + std::to_string(index),
                  "the CUDA driver shows " + std::to_string(count) + " device(s), counted from 0");
  }
  return *driver;
}

}  // namespace

DeviceInfo describe_cuda_device(int index) {
  return describe(CudaGpu(driver_of(index), index), "/sys");
}

std::shared_ptr<Device> make_cuda_device(int index, const std::filesystem::path& sysfs) {
  return std::make_shared<CudaDevice>(driver_of(index), index, sysfs);
}

int current_cuda_device() noexcept {
  const CudaDriver* driver = cuda_driver();
  if (driver == nullptr) {
    return -1;
  }
  CUcontext current = nullptr;
  CUdevice device = -1;
  const bool known = driver->ctx_get_current(&current) == CUDA_SUCCESS && current != nullptr &&
                     driver->ctx_get_device(&device) == CUDA_SUCCESS;
  return known ? device : -1;
}

bool has_cuda_context() noexcept {
  return cuda_driver_is_loaded() && current_cuda_device() >= 0;
}

std::optional<CudaPlace> locate_cuda_memory(DeviceAddress address) noexcept {
  const CudaDriver* driver = cuda_driver();
  return driver == nullptr ? std::nullopt : locate_cuda_memory(*driver, address);
}

}  // namespace hippogriff

#else  // built without CUDA's headers

namespace hippogriff {

const CudaPresence& cuda_presence() noexcept {
  static const CudaPresence absent{0, "this hippogriff was built without CUDA", 0};
  return absent;
}

std::shared_ptr<Device> make_cuda_device(int index, const std::filesystem::path& /*sysfs*/) {
  throw_unsupported("open cuda:" + std::to_string(index), cuda_presence().why_not);
}

DeviceInfo describe_cuda_device(int index) {
  throw_unsupported("open cuda:" + std::to_string(index), cuda_presence().why_not);
}

int current_cuda_device() noexcept {
  return -1;
}

bool has_cuda_context() noexcept {
  return false;
}

std::optional<CudaPlace> locate_cuda_memory(DeviceAddress /*address*/) noexcept {
  return std::nullopt;
}

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
