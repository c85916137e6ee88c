// The leader whose reservations the processes of the shim's group tests use.
#pragma once

#include "node/node.hpp"

namespace hippogriff::testing {

node::Node& leader();

}  // namespace hippogriff::testing
