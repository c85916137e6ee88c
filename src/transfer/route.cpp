// The names of routes and lanes, and which lane belongs to which route.
#include "transfer/route.hpp"

#include "base/error.hpp"

namespace hippogriff {

std::string_view route_name(Route route) {
  switch (route) {
    case Route::automatic:
      return "auto";
    case Route::direct:
      return "direct";
    case Route::mapped:
      return "mapped";
    case Route::pipelined:
      return "pipelined";
    case Route::parked:
      return "parked";
  }
  return "unknown";
}

std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::direct:
      return "direct";
    case Lane::mapped:
      return "mapped";
    case Lane::buffered:
      return "buffered";
    case Lane::direct_io:
      return "direct_io";
    case Lane::parked:
      return "parked";
  }
  return "unknown";
}

Route route_of(Lane lane) {
  switch (lane) {
    case Lane::direct:
      return Route::direct;
    case Lane::mapped:
      return Route::mapped;
    case Lane::buffered:
    case Lane::direct_io:
      return Route::pipelined;
    case Lane::parked:
      return Route::parked;
  }
  HIPPO_ASSERT(false && "a lane outside the enumeration");
  return Route::automatic;
}

}  // namespace hippogriff
