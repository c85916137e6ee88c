// The leader whose reservations the processes of the shim's group tests use.
#pragma once

#include "node/node_client.hpp"

namespace hippogriff::testing {

node::NodeClient& leader();

}  // namespace hippogriff::testing
