// Tells addresses apart.
#include "noded/open_node.hpp"

#include "noded/connection.hpp"
#include "noded/run_token.hpp"

#include <string>

namespace hippogriff::noded {

namespace {

constexpr std::string_view scheme = "unix:";

}  // namespace

std::unique_ptr<node::NodeClient> open_node(std::string_view address,
                                            const node::NodeOptions& options,
                                            std::string_view reservation) {
  if (address.starts_with(scheme)) {
    return std::make_unique<Connection>(
        ConnectionOptions{.path = std::string(address.substr(scheme.size())),
                          .reservation = std::string(reservation)});
  }
  node::NodeOptions own = options;
  if (!reservation.empty()) {
    own.leader = node::Leader::parse(reservation);
  }
  if (!address.empty()) {
    own.path = address;
  }
  return std::make_unique<node::Node>(own);
}

bool can_name_leader(std::string_view address, std::string_view reservation) noexcept {
  return address.starts_with(scheme)
             ? RunToken::parse(reservation).has_value()
             : address != "off" && node::Leader::parse(reservation).has_value();
}

}  // namespace hippogriff::noded
