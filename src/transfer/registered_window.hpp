// Pages of a file mapping that the device may copy from or to.
#pragma once

#include "device/device.hpp"
#include "storage/storage.hpp"

#include <memory>
#include <span>
#include <utility>

namespace hippogriff {

// Owns the mapping and its registration. Movable; thread-safe as its device and file are.
class RegisteredWindow {
 public:
  RegisteredWindow() = default;

  // `mapping`: of `file`, page-aligned. Throws as Device::register_host does, and unmaps it then.
  RegisteredWindow(Device& device,
                   std::shared_ptr<File> file,
                   std::span<std::byte> mapping,
                   HostAccess access)
      : device_(&device), file_(std::move(file)), mapping_(mapping) {
    try {
      device.register_host(mapping.data(), mapping.size(), access);
    } catch (...) {
      file_->unmap(mapping_);
      throw;
    }
  }

  ~RegisteredWindow() { close(); }

  RegisteredWindow(const RegisteredWindow&) = delete;
  RegisteredWindow& operator=(const RegisteredWindow&) = delete;

  RegisteredWindow(RegisteredWindow&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)),
        file_(std::move(other.file_)),
        mapping_(std::exchange(other.mapping_, {})) {}

  RegisteredWindow& operator=(RegisteredWindow&& other) noexcept {
    if (this != &other) {
      close();
      device_ = std::exchange(other.device_, nullptr);
      file_ = std::move(other.file_);
      mapping_ = std::exchange(other.mapping_, {});
    }
    return *this;
  }

  [[nodiscard]] std::byte* data() const { return mapping_.data(); }

  [[nodiscard]] std::size_t size() const { return mapping_.size(); }

  // The device may still use the pages: they stay mapped and registered.
  void abandon() { device_ = nullptr; }

 private:
  void close() noexcept {
    if (device_ != nullptr) {
      device_->unregister_host(mapping_.data());
      file_->unmap(mapping_);
      device_ = nullptr;
    }
  }

  Device* device_ = nullptr;
  std::shared_ptr<File> file_;
  std::span<std::byte> mapping_;
};

}  // namespace hippogriff
