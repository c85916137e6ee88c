// What the living had in a segment whose file was removed: it goes into the one that replaces it,
// so that nobody is promised the memory that they hold.
#pragma once

#include "node/books.hpp"
#include "node/layout.hpp"
#include "node/segment_place.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace hippogriff::node {

// As a board's DeviceUse, read once.
struct CarriedUse {
  std::uint64_t key = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t group_used_bytes = 0;
  std::uint64_t granted_bytes = 0;
};

static_assert(sizeof(CarriedUse) == sizeof(DeviceUse));

struct Legacy {
  struct Client {
    std::uint32_t index = 0;  // its slot, there and here
    ClientIdentity identity;
    std::array<CarriedUse, devices_max> uses{};
  };

  Books books;
  std::vector<Client> clients;  // by index
};

static_assert(sizeof(Legacy::Client::uses) == sizeof(ClientBoard::uses));

// Looks for removed files of that place that a process still has open: a program of `hippogriff
// run` has, whatever it is. They lay in the folder of the file `fresh_fd`, which will replace them.
// `fresh` books where there are none, or nobody lives that is in them.
// Not found are files whose every holder hides its descriptors from this process: other users', and
// those of a pid namespace that is not below this one. Throws Error(unsupported) when such a file
// is of another version and in use. `goes_on` is called again and again while it looks.
Legacy legacy_of(const SegmentPlace& place,
                 int fresh_fd,
                 const Books& fresh,
                 const std::function<void()>& goes_on);

}  // namespace hippogriff::node
