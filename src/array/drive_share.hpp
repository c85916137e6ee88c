// How much of a drive a process takes while arrays of others read and write there, from what these
// show on the node.
#pragma once

#include "node/arrays.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

namespace hippogriff::ondemand {

// A process may always have so many requests at a drive, and so many while it is alone.
inline constexpr std::uint64_t drive_share_min = 8;
inline constexpr std::uint64_t drive_share_max = std::uint64_t{1} << 20;

// Who is at a drive beside us. Whatever the numbers are, drive_share is within its bounds.
struct DriveCrowd {
  // Of each other process: what it wants of the drive now, in requests as long as ours.
  std::vector<std::uint64_t> others;
  double answers_per_second = 0;  // to all, us too
  std::uint64_t least_ns = 0;     // that a request of anyone took when it was quickest; 0: unknown
};

// Requests that this process may have at the drive: as many as the least of the others wants, or
// its part of what the drive serves while each request takes twice the least, if that is more. So
// nobody's wait for long behind ours, and a drive that is not busy holds nobody back.
[[nodiscard]] std::uint64_t drive_share(const DriveCrowd& crowd);

// Follows what others show from look to look. For one thread at a time.
class OthersAtDrive {
 public:
  // All that others show, also of other drives; `request_bytes` is how long our requests are.
  // `least_ns` and `answers_per_second` are theirs alone.
  DriveCrowd look(std::span<const node::SeenArray> seen,
                  std::string_view drive,
                  std::uint64_t request_bytes,
                  std::int64_t now_ns);

 private:
  struct Known {
    std::uint64_t answers = 0;
    std::int64_t counted_ns = 0;
    std::int64_t answered_ns = 0;  // when the drive was last seen to have answered; 0: never
    double per_second = 0;
    std::uint64_t wants = 0;  // commands in flight: sinks slowly, for they are counted at a moment
  };

  using Array = std::tuple<std::uint32_t, std::uint32_t, std::int64_t>;  // client, record, opened

  static void update(Known& known, const node::SeenArray& seen);

  std::map<Array, Known> known_;
};

}  // namespace hippogriff::ondemand
