// The limit comes from HIPPOGRIFF_MEMORY, what a context takes from HIPPOGRIFF_CONTEXT_BYTES.
#include "shim/process_ledger.hpp"

#include "base/size.hpp"
#include "shim/node_ledger.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

namespace hippogriff::shim {
namespace {

bool is_device(int device) noexcept {
  return device >= 0 && device < ProcessLedger::devices_max;
}

// What the variable says; when that is no size, says so and answers `bad`.
std::uint64_t size_from_environment(const char* name,
                                    std::uint64_t absent,
                                    std::uint64_t bad) noexcept {
  const char* text = ::secure_getenv(name);
  if (text == nullptr || *text == '\0') {
    return absent;
  }
  try {
    return parse_size(text);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "hippogriff: %s: %s\n", name, failure.what());
    return bad;
  }
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

Ledger& ledger() noexcept {
  // In static memory and never destroyed: other libraries free memory while the process exits.
  alignas(ProcessLedger) static unsigned char memory[sizeof(ProcessLedger)];
  static Ledger* const books = []() noexcept -> Ledger* {
    const std::uint64_t context_bytes = size_from_environment("HIPPOGRIFF_CONTEXT_BYTES", 0, 0);
    if (Ledger* shared = make_node_ledger(context_bytes)) {
      return shared;
    }
    return new (memory) ProcessLedger(
        size_from_environment("HIPPOGRIFF_MEMORY", Ledger::unlimited, 0), context_bytes);
  }();
  return *books;
}

}  // namespace hippogriff::shim
