// The node by its address: in shared memory or behind a server.
#pragma once

#include "node/node.hpp"

#include <memory>
#include <string_view>

namespace hippogriff::noded {

// "unix:/path" is a server's socket, "unix:" the default one's; all else is the path of a segment,
// and an empty address the one that `options` name. For a server the options mean nothing: the
// node's are the server's. `reservation` are the words of a client to follow, if it lives. Throws
// as Connection or Node do.
std::unique_ptr<node::NodeClient> open_node(std::string_view address,
                                            const node::NodeOptions& options = {},
                                            std::string_view reservation = {});

// Whether these can be the words of a client of the node at that address; "off" is none.
bool can_name_leader(std::string_view address, std::string_view reservation) noexcept;

}  // namespace hippogriff::noded
