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
  gid_t gid = 0;
};

Peer peer_of(int socket);

// Whether this process serves, or asks, that user: itself and root.
bool trusted(uid_t uid) noexcept;

// Whether the process was in the group when it connected, or listened. Throws Error(io_error).
bool is_member(int socket, const Peer& peer, gid_t group);

// Readable once the process that connected has ended: that one, and not another that has got its
// number meanwhile (Linux 6.5; before it is asked for by number). Invalid where the kernel cannot
// say. Throws Error(io_error) when it has ended and left nothing.
Descriptor process_of_peer(int socket, pid_t pid);

// What a server says to a client for which it has no descriptors, and what to do; null for any
// other errno.
const char* no_descriptors_left(int errno_value) noexcept;

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
