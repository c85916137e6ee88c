// The server's place in the file system: one server, nobody else's file, nobody else's eyes.
#pragma once

#include "noded/server_place.hpp"
#include "storage/descriptor.hpp"

#include <sys/types.h>

#include <string>

namespace hippogriff::noded {

// A listening socket of mode 0600, a group's of mode 0660. A file beside it, "<path>.lock", is
// locked as long as the server lives and stays there after it: whoever has the lock may replace the
// socket of a dead server.
class Listener {
 public:
  // Throws Error: busy when a server has the path, unsupported when what is there is no socket of
  // this user (it is left alone), or the default path's folder is open to others, or a group's
  // server would stand in one where others may replace its socket; io_error.
  explicit Listener(ServerPlace place);
  // Removes the socket.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return place_.path; }

  [[nodiscard]] const ServerPlace& place() const noexcept { return place_; }

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  void take_lock();
  [[nodiscard]] bool find_own_socket() const;
  void remove_dead_socket() const;
  void listen();
  void share_with_group() const;

  const ServerPlace place_;
  Descriptor lock_;
  Descriptor socket_;
  ino_t inode_ = 0;
};

}  // namespace hippogriff::noded
