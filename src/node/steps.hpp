// Places in an operation where a process may die: tests kill it at each of them.
#pragma once

#include <sys/types.h>

namespace hippogriff::node {

// Called under the lock and around it; `context` is the test's. Members left null are not called.
struct Steps {
  void (*at)(void* context, const char* place) = nullptr;
  // Stands in for posix_fallocate: a full /dev/shm.
  int (*allocate)(void* context, int fd, off_t size_bytes) = nullptr;
  void* context = nullptr;
};

inline void step(const Steps& steps, const char* place) {
  if (steps.at != nullptr) [[unlikely]] {
    steps.at(steps.context, place);
  }
}

}  // namespace hippogriff::node
