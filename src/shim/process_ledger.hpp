// Books of one process alone: the same limit for each of its devices.
#pragma once

#include "shim/ledger.hpp"

#include <array>
#include <atomic>

namespace hippogriff::shim {

class ProcessLedger final : public Ledger {
 public:
  // Bytes a device; context_bytes are what each context is counted with.
  ProcessLedger(std::uint64_t limit_bytes, std::uint64_t context_bytes) noexcept
      : limit_bytes_(limit_bytes), context_bytes_(context_bytes) {}

  bool take(int device, std::uint64_t size_bytes, Patience patience) noexcept override;
  void give(int device, std::uint64_t size_bytes) noexcept override;
  [[nodiscard]] std::uint64_t size_bytes(int device) const noexcept override;
  [[nodiscard]] std::uint64_t used_bytes(int device) const noexcept override;

  [[nodiscard]] bool is_claimed(int /*device*/) const noexcept override { return true; }

  [[nodiscard]] std::uint64_t context_bytes(int device) const noexcept override;
  void forked() noexcept override;

  static constexpr int devices_max = 128;

 private:
  const std::uint64_t limit_bytes_;
  const std::uint64_t context_bytes_;
  std::array<std::atomic<std::uint64_t>, devices_max> used_bytes_ = {};
};

}  // namespace hippogriff::shim
