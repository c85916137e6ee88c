// The server's half of one connection: its thread, its node, and the waits of its client.
#pragma once

#include "node/node.hpp"
#include "noded/guest.hpp"
#include "noded/protocol.hpp"
#include "noded/shared_run.hpp"
#include "noded/socket.hpp"
#include "storage/descriptor.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace hippogriff::noded {

// Waits of one client at a time; one more is answered with `busy`.
inline constexpr std::size_t waits_max = 64;

// Answers requests until the client hangs up, dies, or says what makes no sense; then all that it
// held is released. A request that must wait gets a thread of its own, so that others of the same
// client are answered meanwhile, and hanging up is seen.
class Session {
 public:
  // Starts the thread. `guest` is null where users are not bounded; `runs` are the server's. Throws
  // Error, and std::system_error without a thread: the socket is still the caller's then.
  Session(Descriptor& socket,
          const Peer& peer,
          std::shared_ptr<Guest> guest,
          std::shared_ptr<SharedRuns> runs,
          node::NodeOptions options);
  // Ends it, within the node's `lock_timeout` and some.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] bool over() const noexcept { return over_; }

  [[nodiscard]] uid_t uid() const noexcept { return uid_; }

  // Without waiting for it.
  void end() noexcept;

 private:
  struct Wait {
    std::uint64_t id = 0;  // of the request
    std::thread thread;
    std::atomic<bool> cancelled{false};
    std::atomic<bool> over{false};
  };

  struct Answer {
    ReplyMessage reply;
    std::vector<std::byte> rest;
  };

  void serve();
  void serve_requests();
  bool receive(RequestMessage& request);
  bool handle(const RequestMessage& request);
  Answer carry_out(const RequestMessage& request, const std::function<bool()>& cancelled) noexcept;
  void carry_out_on_node(const RequestMessage& request,
                         const std::function<bool()>& cancelled,
                         Answer& answer);
  void carry_out_in_group(const RequestMessage& request,
                          const std::function<bool()>& cancelled,
                          Answer& answer);
  Answer begin_wait(const RequestMessage& request, Answer refused);
  void cancel(std::uint64_t id) noexcept;
  std::uint32_t add_device(std::string_view name, std::uint64_t capacity_bytes);
  std::uint64_t reserve(const node::Request& request);
  std::uint64_t defer(const node::Request& request);
  void release(std::uint64_t handle);
  void look_outside(const RequestMessage& request);
  bool join(std::string_view token);
  std::string share();
  bool take(std::uint32_t device, std::uint64_t size_bytes);
  void give(std::uint32_t device, std::uint64_t size_bytes);
  void give_all() noexcept;
  void end_waits();
  void leave_node();
  void send(const Answer& answer) noexcept;

  Descriptor socket_;
  Descriptor process_;
  const uid_t uid_;
  const std::shared_ptr<Guest> guest_;
  const std::shared_ptr<SharedRuns> runs_;
  std::atomic<std::uint32_t> reservations_{0};
  node::NodeOptions options_;
  std::shared_ptr<node::Node> node_;  // also its run's, where it leads one
  std::shared_ptr<SharedRun> run_;    // which it leads or follows; or null
  bool leads_ = false;
  std::map<std::uint32_t, std::uint64_t> taken_;  // of the run's, by device
  std::map<std::uint32_t, std::string> devices_;  // names, by the node's numbers
  std::list<Wait> waits_;                         // the session's thread's
  std::mutex send_turn_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace hippogriff::noded
