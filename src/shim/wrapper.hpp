// The functions that stand in for the driver's where something is counted or answered.
#pragma once

#include "shim/driver_api.hpp"

#include <span>
#include <type_traits>

namespace hippogriff::shim {

struct Wrapper {
  Function function;
  const void* address;
};

// Checks that the wrapper has the prototype of the function it stands in for.
template <typename Theirs, typename Ours>
Wrapper make_wrapper(Function function, Ours* ours) noexcept {
  static_assert(std::is_same_v<Theirs, Ours>, "the wrapper's prototype is not the driver's");
  return {function, reinterpret_cast<const void*>(ours)};
}

#define HIPPO_WRAPPER(symbol, ours) \
  ::hippogriff::shim::make_wrapper<decltype(::symbol)>(::hippogriff::shim::Function::symbol, ours)

// What each file of wrappers has.
std::span<const Wrapper> memory_wrappers() noexcept;
std::span<const Wrapper> array_wrappers() noexcept;
std::span<const Wrapper> pool_wrappers() noexcept;
std::span<const Wrapper> capture_wrappers() noexcept;
std::span<const Wrapper> physical_wrappers() noexcept;
std::span<const Wrapper> context_wrappers() noexcept;
std::span<const Wrapper> graph_wrappers() noexcept;
std::span<const Wrapper> query_wrappers() noexcept;
std::span<const Wrapper> lookup_wrappers() noexcept;

}  // namespace hippogriff::shim
