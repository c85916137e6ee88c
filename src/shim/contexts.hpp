// CUDA contexts: on which device a thread allocates, what a context takes itself, what dies with
// it.
#pragma once

#include "shim/driver_api.hpp"

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace hippogriff::shim {

// Where an allocation of the calling thread lands.
struct Place {
  CUcontext context = nullptr;
  int device = 0;
};

enum class Standing {
  found,
  nowhere,  // no current context, or no driver: the driver says what is wrong
  refused,  // found, but it is new to us and needs more memory itself than there is
};

struct Context {
  int device = 0;
  bool primary = false;
  unsigned attached = 0;          // cuCtxAttach without cuCtxDetach
  std::uint64_t taken_bytes = 0;  // what the ledger gave for it
};

// The contexts of the process. Thread-safe. Contexts made behind our back (the runtime makes the
// primary one through a private table) are found when something is allocated in them.
class Contexts {
 public:
  // False, and the bytes are still the caller's, when the context is known already.
  bool add(CUcontext handle, const Context& context) noexcept;
  std::optional<Context> find(CUcontext handle) noexcept;
  std::optional<Context> remove(CUcontext handle) noexcept;
  std::optional<CUcontext> primary_of(int device) noexcept;
  // Changes the count of attachments; answers it, negative when detaching would end the context.
  int attach(CUcontext handle, int change) noexcept;

  // Held around the calls that make and end primary contexts, so that their end is noticed.
  std::mutex primary_mutex;

 private:
  std::mutex mutex_;
  std::unordered_map<CUcontext, Context> contexts_;
};

Standing current_place(Place* place) noexcept;
Standing place_in(CUcontext context, Place* place) noexcept;
// Where an allocation in the stream lands: in the stream's context; the default streams, 0 to 2,
// are those of the current one.
Standing stream_place(CUstream stream, Place* place) noexcept;
// What threads remember of contexts and streams is out of date.
void forget_places() noexcept;

}  // namespace hippogriff::shim
