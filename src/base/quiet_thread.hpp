// A thread of ours in somebody else's program.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace hippogriff {

// It takes no signals: they are the program's. `name` is of 15 characters at most. Throws
// std::system_error where there is none to be had.
template <typename Body>
std::thread quiet_thread(const char* name, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(body));
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_setname_np(thread.native_handle(), name);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace hippogriff
