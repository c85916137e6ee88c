// The client's half of a connection: the node's operations, answered by a server.
#pragma once

#include "node/fork_page.hpp"
#include "node/node_client.hpp"
#include "noded/protocol.hpp"
#include "noded/socket.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace hippogriff::noded {

struct ConnectionOptions {
  std::string path;  // as ServerPlace has it
  // The words of a client that this one follows: see leader. One that they do not name, or that has
  // ended, is not followed.
  std::string reservation;
  std::chrono::milliseconds connect_timeout{5000};
  // So much longer than an operation's own timeout its answer may take.
  std::chrono::milliseconds reply_margin{10'000};
};

// Thread-safe; throws what `node::Node` throws, and Error(io_error) when the server is gone, which
// a waiting thread learns at once. Then the reservations are gone as well: it does not connect
// again by itself, because others may have been promised the memory meanwhile. Every later
// operation fails, and the program decides. Error(forked) in a child of the process that made it.
class Connection final : public node::NodeClient {
 public:
  // Throws Error: io_error when nobody listens; unsupported when the server speaks another version,
  // or listens at the default path, or as a group's, and is a stranger's; busy when it has all the
  // clients it can have.
  explicit Connection(ConnectionOptions options);
  // What it holds is released when this returns, if the server answers.
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::uint32_t add_device(std::string_view name, std::uint64_t capacity_bytes) override;
  void set_unreserved(std::uint32_t device, const node::Unreserved& use) override;
  void set_policy(node::Policy policy, node::OvertakeBound bound) override;
  std::uint64_t reserve(const node::Request& request) override;
  void grow(std::uint64_t handle,
            std::uint64_t size_bytes,
            std::chrono::milliseconds timeout,
            const std::function<bool()>& interrupted = nullptr) override;
  void shrink(std::uint64_t handle, std::uint64_t size_bytes) override;
  void release(std::uint64_t handle) override;
  [[nodiscard]] node::NodeView view() override;

  // Words for processes of the same user that ask the same server, and for nobody else. Those who
  // follow use what this one has reserved; it lasts until it and all of them have hung up. Of a
  // follower: those of its leader, and what it has taken is given back.
  std::string leader() override;

  // Nothing: the connection ends where the process goes on as another program.
  void hand_over() override {}

  // Without words where the server is gone: then nobody follows, and nothing is taken.
  [[nodiscard]] bool follows() const noexcept override { return follows_ && !lost_; }

  bool take(std::uint32_t device, std::uint64_t size_bytes) noexcept override;
  void give(std::uint32_t device, std::uint64_t size_bytes) noexcept override;
  std::uint64_t defer(const node::Request& request) override;
  [[nodiscard]] std::uint64_t deferred_bytes(std::uint32_t device) override;
  void claim_deferred(std::uint32_t device,
                      std::chrono::milliseconds timeout,
                      const std::function<bool()>& interrupted = nullptr) override;
  void grow_group(std::uint32_t device,
                  std::uint64_t size_bytes,
                  std::chrono::milliseconds timeout,
                  const std::function<bool()>& interrupted = nullptr) override;
  [[nodiscard]] std::uint64_t granted_bytes(std::uint32_t device) noexcept override;
  [[nodiscard]] std::uint64_t group_used_bytes(std::uint32_t device) noexcept override;

  // What one uses who follows nobody is not told: that were a message an allocation.
  void show_used(std::uint32_t /*device*/, std::uint64_t /*size_bytes*/) noexcept override {}

 private:
  struct Answer {
    ReplyMessage reply;
    std::vector<std::byte> rest;
  };

  // A request on its way, on the stack of the thread that waits for its answer.
  struct Call {
    std::uint64_t id = 0;
    std::optional<Answer> answer;
  };

  std::uint64_t ask(const RequestMessage& request) noexcept;
  Answer call(RequestMessage request, const std::function<bool()>& interrupted = nullptr);
  void wait(Call& call,
            std::unique_lock<std::mutex>& lock,
            MonotonicTime deadline,
            const std::function<bool()>& interrupted) noexcept;
  void cancel(const Call& call) noexcept;
  void read_for(std::unique_lock<std::mutex>& lock,
                MonotonicTime until,
                MonotonicTime deadline) noexcept;
  int receive(Answer& answer, MonotonicTime deadline) const noexcept;
  void deliver(Answer answer) noexcept;
  void lose(int errno_value) noexcept;
  [[noreturn]] void throw_lost() const;

  ConnectionOptions options_;
  node::ForkPage fork_page_;
  Descriptor socket_;
  bool follows_ = false;
  std::atomic<bool> lost_{false};
  std::mutex mutex_;  // guards all below, and the change of lost_
  std::condition_variable changed_;
  std::vector<Call*> calls_;
  std::uint64_t next_id_ = 1;
  bool reading_ = false;  // one of the waiting threads reads, for all
  int lost_errno_ = 0;
  std::optional<Failure> refusal_;  // the server's last words
};

}  // namespace hippogriff::noded
