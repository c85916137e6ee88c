// Device host through hippogriff's C interface, and what all devices have in common.
#include "workloads/sharing/device.hpp"

#include <hippogriff/hippogriff.h>

#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

namespace {

void check(int status) {
  if (status == HIPPOGRIFF_OK) {
    return;
  }
  hippogriff_error error;
  hippogriff_last_error(&error);
  if (status == HIPPOGRIFF_OUT_OF_DEVICE_MEMORY) {
    throw NoDeviceMemory(error.message);
  }
  throw std::runtime_error(error.message);
}

// Its limit is HIPPOGRIFF_HOST_MEMORY; its memory is ordinary memory.
class Host final : public Device {
 public:
  Host() { check(hippogriff_init()); }

  ~Host() override { hippogriff_deinit(); }

  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  [[nodiscard]] bool is_gpu() const override { return false; }

  void* allocate(std::size_t size_bytes) override {
    void* memory = nullptr;
    check(hippogriff_malloc("host", size_bytes, &memory));
    return memory;
  }

  void free(void* memory) noexcept override { hippogriff_free(memory); }

  void fill(void* memory, std::size_t size_bytes) override {
    std::memset(memory, 0xA5, size_bytes);
  }

  void copy_in(void* to, const void* from, std::size_t size_bytes) override {
    check(hippogriff_copy_to_device(to, from, size_bytes));
  }

  void copy_out(void* to, const void* from, std::size_t size_bytes) override {
    check(hippogriff_copy_to_host(to, from, size_bytes));
  }
};

// A device that is opened by whoever uses it first, or asks what it is.
class AtUse final : public Device {
 public:
  explicit AtUse(std::string name) : name_(std::move(name)) {}

  [[nodiscard]] bool is_gpu() const override { return device().is_gpu(); }

  void* allocate(std::size_t size_bytes) override { return device().allocate(size_bytes); }

  void free(void* memory) noexcept override { device_->free(memory); }

  void fill(void* memory, std::size_t size_bytes) override { device().fill(memory, size_bytes); }

  void copy_in(void* to, const void* from, std::size_t size_bytes) override {
    device().copy_in(to, from, size_bytes);
  }

  void copy_out(void* to, const void* from, std::size_t size_bytes) override {
    device().copy_out(to, from, size_bytes);
  }

 private:
  [[nodiscard]] Device& device() const {
    if (device_ == nullptr) {
      device_ = open_device(name_);
    }
    return *device_;
  }

  const std::string name_;
  mutable std::unique_ptr<Device> device_;
};

// The N of "cuda:N", or -1.
int gpu_number(std::string_view name) {
  if (!name.starts_with("cuda:")) {
    return -1;
  }
  const std::string_view digits = name.substr(5);
  int number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? number : -1;
}

}  // namespace

std::string resolve_device(const std::string& name) {
  const int count = gpu_count();
  if (name.empty()) {
    return count > 0 ? "cuda:0" : "host";
  }
  const int number = gpu_number(name);
  if (name != "host" && (number < 0 || number >= count)) {
    throw std::invalid_argument("no such device here: " + name);
  }
  return name;
}

std::unique_ptr<Device> open_device(const std::string& name) {
  if (name == "host") {
    return std::make_unique<Host>();
  }
  return open_gpu(gpu_number(name));
}

std::unique_ptr<Device> open_device_at_use(const std::string& name) {
  return std::make_unique<AtUse>(name);
}

DeviceMemory::DeviceMemory(Device& device, std::size_t size_bytes)
    : device_(device),
      size_bytes_(size_bytes),
      memory_(static_cast<char*>(device.allocate(size_bytes))) {
  try {
    device_.fill(memory_, size_bytes_);
  } catch (...) {
    device_.free(memory_);
    throw;
  }
}

DeviceMemory::~DeviceMemory() {
  device_.free(memory_);
}

void* DeviceMemory::cut_bytes(std::size_t size_bytes) {
  const std::size_t taken = rounded(size_bytes);
  if (taken > size_bytes_ - used_bytes_) {
    throw std::invalid_argument("the data does not fit into " + std::to_string(size_bytes_) +
                                " bytes of device memory: give more by --memory");
  }
  used_bytes_ += taken;
  return memory_ + (used_bytes_ - taken);
}
