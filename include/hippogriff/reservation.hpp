// Sharing devices with other processes, for C++20: thin, inline, over hippogriff_reserve.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_RESERVATION_HPP_
#define HIPPOGRIFF_RESERVATION_HPP_

#include <hippogriff/hippogriff.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace hippogriff::inline v0 {

// How to reserve. Without a timeout the wait lasts as long as it takes; zero: no wait.
struct ReserveOptions {
  std::string device;  // "": the default device
  std::optional<std::chrono::nanoseconds> timeout;
  std::int32_t priority = 0;  // larger is served sooner, under the priority policies
};

// Device memory promised to this process until the object ends: see hippogriff_reserve. Needs no
// Runtime. Move-only.
class Reservation {
 public:
  // Throws TransferError: HIPPOGRIFF_OUT_OF_DEVICE_MEMORY, HIPPOGRIFF_BUSY, HIPPOGRIFF_TIMED_OUT.
  explicit Reservation(std::size_t size_bytes, const ReserveOptions& options = {}) {
    hippogriff_reserve_options c = HIPPOGRIFF_RESERVE_OPTIONS_INIT;
    c.device = detail::name_or_null(options.device);
    c.timeout_ms = to_ms(options.timeout);
    c.priority = options.priority;
    detail::check(hippogriff_reserve(size_bytes, &c, &reservation_));
  }

  ~Reservation() { hippogriff_reservation_release(reservation_); }

  Reservation(Reservation&& other) noexcept
      : reservation_(std::exchange(other.reservation_, nullptr)) {}

  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(reservation_, other.reservation_);
    return *this;
  }

  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  // Grows or shrinks it; what was reserved stays when this throws.
  void resize(std::size_t size_bytes,
              std::optional<std::chrono::nanoseconds> timeout = std::chrono::nanoseconds(0)) {
    hippogriff_reserve_options c = HIPPOGRIFF_RESERVE_OPTIONS_INIT;
    c.timeout_ms = to_ms(timeout);
    detail::check(hippogriff_reservation_resize(reservation_, size_bytes, &c));
  }

  [[nodiscard]] std::size_t size_bytes() const {
    std::size_t size = 0;
    detail::check(hippogriff_reservation_get(reservation_, &size, nullptr));
    return size;
  }

  [[nodiscard]] std::string device() const {
    const char* name = nullptr;
    detail::check(hippogriff_reservation_get(reservation_, nullptr, &name));
    return name;
  }

 private:
  static std::int64_t to_ms(std::optional<std::chrono::nanoseconds> timeout) {
    return timeout ? detail::to_timeout_ms(*timeout) : -1;
  }

  hippogriff_reservation* reservation_ = nullptr;
};

}  // namespace hippogriff::inline v0

#endif  // HIPPOGRIFF_RESERVATION_HPP_
