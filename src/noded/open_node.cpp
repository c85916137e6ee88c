// Tells addresses apart.
#include "noded/open_node.hpp"

#include "noded/connection.hpp"

#include <string>

namespace hippogriff::noded {

std::unique_ptr<node::NodeClient> open_node(std::string_view address,
                                            const node::NodeOptions& options) {
  constexpr std::string_view scheme = "unix:";
  if (address.starts_with(scheme)) {
    return std::make_unique<Connection>(
        ConnectionOptions{.path = std::string(address.substr(scheme.size()))});
  }
  node::NodeOptions own = options;
  if (!address.empty()) {
    own.path = address;
  }
  return std::make_unique<node::Node>(own);
}

}  // namespace hippogriff::noded
