// A sum a device, raised only where it stays below the limit.
#include "shim/process_ledger.hpp"

namespace hippogriff::shim {
namespace {

bool is_device(int device) noexcept {
  return device >= 0 && device < ProcessLedger::devices_max;
}

}  // namespace

bool ProcessLedger::take(int device, std::uint64_t size_bytes, Patience) noexcept {
  if (!is_device(device)) {
    return limit_bytes_ == unlimited;
  }
  auto& used = used_bytes_[static_cast<std::size_t>(device)];
  std::uint64_t now = used.load(std::memory_order_relaxed);
  do {
    if (now > limit_bytes_ || size_bytes > limit_bytes_ - now) {
      return false;
    }
  } while (!used.compare_exchange_weak(now, now + size_bytes, std::memory_order_relaxed));
  return true;
}

void ProcessLedger::give(int device, std::uint64_t size_bytes) noexcept {
  if (is_device(device)) {
    used_bytes_[static_cast<std::size_t>(device)].fetch_sub(size_bytes, std::memory_order_relaxed);
  }
}

std::uint64_t ProcessLedger::size_bytes(int) const noexcept {
  return limit_bytes_;
}

std::uint64_t ProcessLedger::used_bytes(int device) const noexcept {
  return is_device(device)
             ? used_bytes_[static_cast<std::size_t>(device)].load(std::memory_order_relaxed)
             : 0;
}

std::uint64_t ProcessLedger::context_bytes(int) const noexcept {
  return context_bytes_;
}

void ProcessLedger::forked() noexcept {
  for (auto& used : used_bytes_) {
    used.store(0, std::memory_order_relaxed);
  }
}

}  // namespace hippogriff::shim
