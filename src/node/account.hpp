// One device's memory as a process uses it: every byte that is taken is covered by a reservation,
// its leader's, its own, or one that grows and shrinks with what is taken.
#pragma once

#include "base/error.hpp"
#include "node/node.hpp"

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace hippogriff::node {

// Thread-safe. The node must outlive it, and need not be one in shared memory. Only `reserve` and
// `resize` wait for memory. In a process that follows a leader with a reservation of the device all
// of it comes out of that one.
class Account {
 public:
  // Throws as Node does.
  Account(NodeClient& node, std::uint32_t device);

  // False when the bytes are promised to others, or more than the leader reserved, or that was left
  // for its first use and has not been claimed.
  bool take(std::uint64_t size_bytes) noexcept;
  void give(std::uint64_t size_bytes) noexcept;
  // For one that follows: has the leader's reservation grown where it is too small, waiting for
  // that up to the timeout. Where it fails, `why` says so. `interrupted` is as in Request.
  bool take_growing(std::uint64_t size_bytes,
                    std::chrono::milliseconds timeout,
                    std::string& why,
                    const std::function<bool()>& interrupted = nullptr) noexcept;

  // For one that follows, with Node's errors: waits until what the leader left for its first use is
  // there. At once where it is there already.
  void claim(std::chrono::milliseconds timeout, const std::function<bool()>& interrupted = nullptr);

  // False while that is still to be claimed.
  [[nodiscard]] bool is_claimed() const {
    return deferred_bytes_ == 0 || node_.granted_bytes(device_) != 0;
  }

  // A reservation of this process's, which covers what is and will be taken. Throws as Node does.
  std::uint64_t reserve(Request request);
  // For those who will follow this process: see Node::defer. It covers nothing here. Of one that
  // follows itself nothing is left but whether it fits: those have the leader's.
  std::uint64_t defer(Request request);
  void resize(std::uint64_t handle,
              std::uint64_t size_bytes,
              std::chrono::milliseconds timeout,
              const std::function<bool()>& interrupted = nullptr);
  // What is taken of it and fits nowhere else stays reserved until it is given.
  void release(std::uint64_t handle);

  [[nodiscard]] std::uint64_t used_bytes() const;
  // Of one reservation; 0 when it has been released.
  [[nodiscard]] std::uint64_t reserved_bytes(std::uint64_t handle) const;

  [[nodiscard]] bool follows() const { return follows_; }

  // What all who follow the leader use together, for one that follows.
  [[nodiscard]] std::uint64_t group_used_bytes() const {
    return follows_ ? node_.group_used_bytes(device_) : 0;
  }

  // What the leader has reserved, or left for its first use, for one that follows.
  [[nodiscard]] std::uint64_t limit_bytes() const {
    return !follows_ ? 0 : is_claimed() ? node_.granted_bytes(device_) : deferred_bytes_;
  }

 private:
  struct Cover {
    std::uint64_t handle = 0;
    std::uint64_t size_bytes = 0;
  };

  [[nodiscard]] std::uint64_t explicit_bytes() const;
  [[nodiscard]] std::uint64_t cover_needed(std::uint64_t used_bytes) const;
  void cover(std::uint64_t size_bytes);
  void uncover(std::uint64_t size_bytes);
  void fit_cover() noexcept;
  void show() noexcept;
  void wait_for_group(std::uint64_t size_bytes, MonotonicTime deadline, Status at_end);
  bool try_grow_in_group(std::uint64_t handle, std::uint64_t size_bytes, bool is_new);
  void grow_in_group(std::uint64_t handle,
                     std::uint64_t size_bytes,
                     MonotonicTime deadline,
                     bool is_new,
                     const std::function<bool()>& interrupted = nullptr);

  NodeClient& node_;
  const std::uint32_t device_;
  const std::uint64_t deferred_bytes_ = 0;  // that the leader had left for its first use
  const bool follows_ = false;
  mutable std::mutex mutex_;       // guards all below; not held while a reservation is waited for
  std::uint64_t next_handle_ = 1;  // of reservations within a leader's
  std::uint64_t used_bytes_ = 0;
  std::vector<Cover> reserved_;  // by this process's explicit wish
  std::vector<Cover> covers_;
  std::uint64_t covered_bytes_ = 0;
};

}  // namespace hippogriff::node
