// The first use of a device by a process whose command's reservation was left for that.
#pragma once

#include "base/error.hpp"
#include "node/account.hpp"
#include "node/complaints.hpp"
#include "node/node.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace hippogriff::node {

// Claims what the leader left for its first use. Thread-safe; node and account must outlive it.
class FirstUse {
 public:
  // `device` is the node's and was added under that UUID. `timeout` is how long the command may
  // wait.
  FirstUse(NodeClient& node,
           Account& account,
           std::uint32_t device,
           std::string uuid,
           std::chrono::milliseconds timeout);

  // Waits where that is needed, no longer than the command may either. Says on stderr what is
  // waited for when it takes long. Throws Error: out_of_device_memory when the reservation is not
  // there in time, cancelled, and as Node does.
  void wait(std::chrono::milliseconds timeout, const std::function<bool()>& interrupted) const;
  // The same for callers without words for it: false when the reservation is not there.
  [[nodiscard]] bool claim(Complaints& complaints) const noexcept;

  [[nodiscard]] Account& account() const { return *account_; }

  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  NodeClient* node_;
  Account* account_;
  std::uint32_t device_;
  std::string uuid_;
  std::chrono::milliseconds timeout_;
};

// The same wait on a thread of its own, for those who ask now and then and have clocks of their
// own. It is waited for while any of them has a Wish. Thread-safe. Its end ends the wait, within a
// look of the node's.
class BackgroundClaim {
 public:
  // One who waits for the reservation, from now on. Must not outlive the claim.
  class Wish {
   public:
    // Throws Error(out_of_host_memory) when there is no thread for it.
    explicit Wish(BackgroundClaim& claim);
    ~Wish();
    Wish(const Wish&) = delete;
    Wish& operator=(const Wish&) = delete;

    // Throws what the wait ended with that this one took part in; each time.
    [[nodiscard]] bool is_there() { return claim_.is_there(round_); }

   private:
    BackgroundClaim& claim_;
    const std::uint64_t round_;
  };

  // `owner` is kept: what the first use's node and account belong to.
  BackgroundClaim(FirstUse first_use, std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), first_use_(std::move(first_use)) {}

  ~BackgroundClaim();
  BackgroundClaim(const BackgroundClaim&) = delete;
  BackgroundClaim& operator=(const BackgroundClaim&) = delete;

  // Takes it where that needs no wait; false where it does.
  [[nodiscard]] bool is_there_now();

  [[nodiscard]] const FirstUse& first_use() const { return first_use_; }

 private:
  std::uint64_t begin_wish();
  void end_wish() noexcept;
  bool is_there(std::uint64_t round);
  void begin_wait_locked();
  void wait() noexcept;
  bool wait_once() noexcept;

  const std::shared_ptr<const void> owner_;
  const FirstUse first_use_;
  std::mutex mutex_;  // guards all below
  std::thread thread_;
  bool waits_ = false;
  bool ends_ = false;
  std::uint64_t wishes_ = 0;
  std::uint64_t round_ = 1;        // another one after each wait that failed
  std::optional<Failure> failed_;  // of the last round that did
};

}  // namespace hippogriff::node
