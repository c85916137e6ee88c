// Which ledger: the command's where there is one, else this process's own. The limit comes from
// HIPPOGRIFF_MEMORY, what a context takes from HIPPOGRIFF_CONTEXT_BYTES.
#include "shim/ledger.hpp"

#include "base/size.hpp"
#include "shim/node_ledger.hpp"
#include "shim/process_ledger.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

namespace hippogriff::shim {
namespace {

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
