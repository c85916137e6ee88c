// Who may have how much device memory: what the wrappers ask before the driver is asked.
#pragma once

#include <cstdint>

namespace hippogriff::shim {

enum class Patience {
  none,      // answer at once
  may_wait,  // may block until memory is free, where the ledger knows how
};

// The books of what this process has of each of its visible devices (CUDA's ordinals). All
// functions may be called by any thread at any time, before main and while the process exits; none
// throws. The wrappers hold no lock when they call take.
class Ledger {
 public:
  Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  virtual ~Ledger() = default;

  // Whether the process may have that many bytes more. Asked first without patience; when that is
  // refused, the driver's unused pool memory is given back and the ledger asked again.
  virtual bool take(int device, std::uint64_t size_bytes, Patience patience) noexcept = 0;
  // What was taken and is no more held.
  virtual void give(int device, std::uint64_t size_bytes) noexcept = 0;

  // The reservation; `unlimited` when there is none.
  [[nodiscard]] virtual std::uint64_t size_bytes(int device) const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t used_bytes(int device) const noexcept = 0;
  // False while the reservation is left for its first use: what the device has free now says
  // nothing of it.
  [[nodiscard]] virtual bool is_claimed(int device) const noexcept = 0;
  // What a context takes of the device beside its allocations; 0 while that is not known.
  [[nodiscard]] virtual std::uint64_t context_bytes(int device) const noexcept = 0;

  // In the child of a fork, before anything else there: the memory is the parent's alone.
  virtual void forked() noexcept = 0;

  static constexpr std::uint64_t unlimited = UINT64_MAX;
};

// This process's, made at the first call and never destroyed.
Ledger& ledger() noexcept;

}  // namespace hippogriff::shim
