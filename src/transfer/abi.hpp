// The boundary: one runtime per process behind the C functions, exceptions turned into statuses,
// the last error kept per thread. The only global state of the library.
#pragma once

#include "transfer/runtime.hpp"

#include <memory>

// The C ABI's handle. It keeps the transfer alive, and the strings it hands out.
struct hippogriff_transfer {
  std::shared_ptr<hippogriff::Transfer> transfer;
  std::uint64_t generation = 0;  // of the process that made it
};

namespace hippogriff {

// How many forks this process is away from the first that used the library: a handle of another
// generation belongs to threads that do not exist here.
std::uint64_t process_generation() noexcept;
[[noreturn]] void throw_forked();

// Longer than any program runs, and short enough for every clock.
inline constexpr std::int64_t longest_timeout_ms = std::int64_t{10} * 365 * 24 * 3600 * 1000;

// This process's part in the node, made at the first call; null where HIPPOGRIFF_NODE is off.
// Throws Error as NodeShare does.
std::shared_ptr<NodeShare> current_share();

// The runtime between init and deinit. Throws Error(not_initialized, forked).
std::shared_ptr<Runtime> current_runtime();

int start_runtime();
int end_runtime();

// Remembers a failure for hippogriff_last_error; returns its status.
int remember(const Failure& failure) noexcept;

// Runs the body of a C function: 0, or the status of what it throws.
template <typename Body>
int guarded(Body&& body) noexcept {
  try {
    body();
    return HIPPOGRIFF_OK;
  } catch (...) {
    return remember(current_failure());
  }
}

// A copy for the caller, freed by hippogriff_free_string. Throws std::bad_alloc.
char* copy_string(const std::string& text);

// Fills a C error from a failure, whose strings (and `message`) must stay.
void fill_error(hippogriff_error& error, const Failure& failure, const std::string& message);

}  // namespace hippogriff
