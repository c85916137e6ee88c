// Threads whose exceptions are not lost.
#include "transfer/threads.hpp"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace bench {

namespace {

class FirstFailure {
 public:
  void guard(const std::function<void(unsigned)>& work, unsigned thread) {
    try {
      work(thread);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) {
        failure_ = std::current_exception();
      }
    }
  }

  void rethrow() {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

void run_threads(unsigned count, const std::function<void(unsigned)>& work) {
  FirstFailure first;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < count; ++t) {
      threads.emplace_back([&first, &work, t] { first.guard(work, t); });
    }
  }
  first.rethrow();
}

}  // namespace bench
