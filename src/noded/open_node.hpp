// The node by its address: in shared memory or behind a server.
#pragma once

#include "node/node.hpp"

#include <memory>
#include <string_view>

namespace hippogriff::noded {

// "unix:/path" is a server's socket, "unix:" the default one's; all else is the path of a segment,
// and an empty address the one that `options` name. For a server the options mean nothing: the
// node's are the server's. Throws as Connection or Node do.
std::unique_ptr<node::NodeClient> open_node(std::string_view address,
                                            const node::NodeOptions& options = {});

}  // namespace hippogriff::noded
