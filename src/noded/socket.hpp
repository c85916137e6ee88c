// Unix stream sockets: connecting, who is at the other end, and whole messages within a time.
#pragma once

#include "node/segment_lock.hpp"
#include "storage/descriptor.hpp"

#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <span>
#include <string>

namespace hippogriff::noded {

using node::MonotonicTime;

// "$XDG_RUNTIME_DIR/hippogriff.sock", or "/tmp/hippogriff-<uid>/node.sock" where that is not set.
std::string default_socket_path();

// Throws Error(invalid_argument) for a path that is too long for a socket.
sockaddr_un address_of(const std::string& path);

// Waits while the server has too many who want to connect. Throws Error(io_error), with what to do
// when nobody listens.
Descriptor connect_to(const std::string& path, MonotonicTime deadline);

// As the kernel noted it when the connection was made; pid 0 for a process that is not visible from
// here (another pid namespace). Throws Error(io_error).
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};

Peer peer_of(int socket);

// Whether this process serves, or asks, that user: itself and root.
bool trusted(uid_t uid) noexcept;

// Readable once the process has ended; invalid where the kernel cannot say.
Descriptor descriptor_of_process(pid_t pid) noexcept;

// 0 once there is something to receive, or an errno: ETIMEDOUT, ...
int wait_readable(int socket, MonotonicTime deadline) noexcept;
// 0, or an errno: ETIMEDOUT, EPIPE, ...
int send_all(int socket, std::span<const std::byte> bytes, MonotonicTime deadline) noexcept;
// The same: ECONNRESET at the end of the stream, EOWNERDEAD once `process` (-1: none) is readable.
int receive_all(int socket,
                std::span<std::byte> bytes,
                MonotonicTime deadline,
                int process = -1) noexcept;

}  // namespace hippogriff::noded
