// The node for programs that cannot share memory with it: a server on a Unix socket.
#pragma once

#include "node/node.hpp"
#include "noded/listener.hpp"
#include "noded/session.hpp"

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

namespace hippogriff::noded {

struct ServerOptions {
  std::string path;        // as ServerPlace has it, of a group too
  node::NodeOptions node;  // the segment that is served
  std::uint32_t clients_max = node::clients_max;
};

// A group's server is used by its members, within the bounds of guest.hpp, so that none keeps the
// others off. Each connection has a `node::Node` of its own in it, so that clients of the server
// and of the segment keep to the same books by the same rules.
class Server {
 public:
  // Listens from here on; makes the segment where there is none. Throws as Listener and Node do.
  explicit Server(ServerOptions options);

  [[nodiscard]] const std::string& path() const noexcept { return listener_.path(); }

  // Serves until `stop`, or until `stop_fd` (-1: none) is readable: a pipe or eventfd that a signal
  // handler writes to. All connections are closed then, and what they held is released. Starts a
  // thread for each connection and each wait, all signals blocked in them. For one thread, once.
  void run(int stop_fd = -1);

  // From any thread, and from signal handlers.
  void stop() noexcept;

 private:
  void accept_all();
  void accept_one(Descriptor socket);
  void make_room(int errno_value);
  [[nodiscard]] bool refuses(int socket, const Peer& peer, Failure& failure) const;
  std::shared_ptr<Guest> guest(uid_t uid);

  ServerOptions options_;
  Listener listener_;
  Descriptor stop_;
  Descriptor spare_;             // given up to tell a client that there are no descriptors
  std::list<Session> sessions_;  // the thread's that runs, and what follows
  std::map<uid_t, std::shared_ptr<Guest>> guests_;
  std::shared_ptr<GuestTotals> totals_ = std::make_shared<GuestTotals>();
  std::shared_ptr<SharedRuns> runs_ = std::make_shared<SharedRuns>();
};

// Makes a server and runs it.
void run_server(ServerOptions options, int stop_fd);

}  // namespace hippogriff::noded
