// The process's runtime, counted by init and deinit, and what fork does to it.
#include "transfer/abi.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace hippogriff {

namespace {

constexpr std::chrono::milliseconds shutdown_patience{10'000};

struct Process {
  std::mutex mutex;
  std::shared_ptr<Runtime> runtime;
  int inits = 0;
  std::mutex share_mutex;
  bool share_is_chosen = false;
  std::shared_ptr<NodeShare> share;
};

// Never destroyed: threads that could not be joined may use it until the process ends.
Process& process() {
  static auto* const the_process = new Process;
  return *the_process;
}

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> forked{false};
std::atomic<std::uint64_t> generation{0};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

struct LastError {
  Failure failure;
  std::string message;
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

// In the child only the forking thread lives: the parent's runtime, its locks and threads are left
// alone, and a new init starts from nothing.
void after_fork_in_child() {
  auto* const abandoned = new (&process()) Process;
  static_cast<void>(abandoned);
  forked = true;
  ++generation;
}

void watch_forks() {
  static const int installed = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  static_cast<void>(installed);
}

// A runtime works without: then nobody sees what it does, and a notice says why. Not one that must
// wait for its memory: it would take it at once.
void join_node(Runtime& runtime) {
  static_cast<void>(NodeShareOptions::from_environment());  // it shall not do without by mistake
  try {
    runtime.join_node(current_share());
  } catch (const Error& error) {
    if (error.failure().status == Status::busy && NodeShare::left_for_first_use()) {
      throw;
    }
    runtime.join_node(nullptr, error.what());
  }
}

std::shared_ptr<Runtime> runtime_locked(const Process& the_process) {
  if (the_process.runtime != nullptr) {
    return the_process.runtime;
  }
  if (forked) {
    throw_forked();
  }
  throw Error({.status = Status::not_initialized,
               .operation = "use hippogriff",
               .detail = "call hippogriff_init first"});
}

}  // namespace

std::uint64_t process_generation() noexcept {
  return generation;
}

void throw_forked() {
  throw Error({.status = Status::forked,
               .operation = "use hippogriff",
               .detail =
                   "this process was forked after hippogriff_init; call hippogriff_init again "
                   "in the child (device host only: CUDA does not survive a fork), and leave "
                   "the parent's handles to the parent"});
}

std::shared_ptr<NodeShare> current_share() {
  watch_forks();
  Process& the_process = process();
  const std::lock_guard lock(the_process.share_mutex);
  if (!the_process.share_is_chosen) {
    the_process.share = NodeShare::from_environment();
    the_process.share_is_chosen = true;
  }
  return the_process.share;
}

std::shared_ptr<Runtime> current_runtime() {
  Process& the_process = process();
  const std::lock_guard lock(the_process.mutex);
  return runtime_locked(the_process);
}

int start_runtime() {
  watch_forks();
  return guarded([] {
    Process& the_process = process();
    const std::lock_guard lock(the_process.mutex);
    if (the_process.runtime == nullptr) {
      auto made = std::make_shared<Runtime>(Settings::from_environment(), make_system_storage());
      join_node(*made);
      the_process.runtime = std::move(made);
    }
    ++the_process.inits;
    forked = false;
  });
}

int end_runtime() {
  return guarded([] {
    std::shared_ptr<Runtime> runtime;
    {
      Process& the_process = process();
      const std::lock_guard lock(the_process.mutex);
      runtime = runtime_locked(the_process);
      if (--the_process.inits > 0) {
        return;
      }
      the_process.runtime.reset();
    }
    if (!runtime->shutdown(shutdown_patience)) {
      new std::shared_ptr<Runtime>(runtime);  // its threads still use it
      throw Error({.status = Status::timed_out,
                   .operation = "end the runtime",
                   .detail = "a thread did not come back in 10 s (a read that never ends, or a "
                             "hung device); what it holds stays until the process ends"});
    }
  });
}

int remember(const Failure& failure) noexcept {
  try {
    LastError& error = last_error();
    error.failure = failure;
    error.message = failure.message();
  } catch (...) {
    return static_cast<int>(failure.status);  // without memory for words the status has to do
  }
  return static_cast<int>(failure.status);
}

char* copy_string(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) {
    throw std::bad_alloc();
  }
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

void fill_error(hippogriff_error& error, const Failure& failure, const std::string& message) {
  error = {.status = static_cast<hippogriff_status>(failure.status),
           .message = message.c_str(),
           .operation = failure.operation.c_str(),
           .object = failure.object.c_str(),
           .offset = failure.offset,
           .errno_value = failure.errno_value,
           .device_status = failure.device_status};
}

}  // namespace hippogriff

extern "C" void hippogriff_last_error(hippogriff_error* error) {
  if (error != nullptr) {
    const auto& last = hippogriff::last_error();
    hippogriff::fill_error(*error, last.failure, last.message);
  }
}
