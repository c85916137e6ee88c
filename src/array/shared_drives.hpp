// The drives that arrays of this process are on, and what of each it takes at the moment.
#pragma once

#include "array/drive_share.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hippogriff::ondemand {

// Written by all threads of the controller.
struct SharedDrive {
  std::atomic<std::uint64_t> answers{0};         // to requests
  std::atomic<std::uint64_t> answered_bytes{0};  // of them
  std::atomic<std::uint64_t> least_ns{0};        // as node::ArrayCounts has it
  // Requests that this process may have at it, and each of its threads: never 0.
  std::atomic<std::uint64_t> share{drive_share_max};
  std::atomic<std::uint64_t> each_thread{drive_share_max};
  // What it is as fast with as with any number, for each thread. Set before others have it.
  std::uint64_t each_thread_wants = drive_share_max;

  // Whether arrays of other processes are at it.
  [[nodiscard]] bool has_others() const {
    return share.load(std::memory_order_relaxed) < drive_share_max;
  }

  // The mean that some requests took which were in flight at the same time.
  void note_mean(std::uint64_t mean_ns);
};

// What a thread of the controller has at a drive: its own, without atomics where it counts.
struct ThreadDrive {
  SharedDrive* shared = nullptr;
  std::uint64_t in_flight = 0;
  // Since note_answers, and since note_means.
  std::uint64_t answers = 0;
  std::uint64_t answered_bytes = 0;
  std::uint64_t timed = 0;
  std::uint64_t took_ns = 0;

  // For one more, beside `copies` each of which may become one.
  [[nodiscard]] bool has_room(std::uint64_t copies) const {
    return in_flight < shared->each_thread_wants &&
           in_flight + copies < shared->each_thread.load(std::memory_order_relaxed);
  }

  void end(std::uint64_t bytes, std::uint64_t request_ns);
  // Tells the other threads. The mean of a tenth of a second counts where there were enough.
  void note_answers();
  void note_mean();
};

// Thread-safe.
class SharedDrives {
 public:
  using LookAtOthers = std::function<std::vector<node::SeenArray>()>;
  // By a drive's name.
  using RequestsWanted = std::function<std::uint64_t(const std::string&)>;

  static constexpr std::int64_t look_interval_ns = 100'000'000;

  explicit SharedDrives(std::size_t threads, RequestsWanted requests_wanted = requests_wanted_by)
      : threads_(threads), requests_wanted_(std::move(requests_wanted)) {}

  // Half of those that the kernel keeps for a drive of the machine: who asks for one when none is
  // left sleeps until one is. With 1024 requests a virtio drive that has 256 gave 6 to 12 % fewer
  // random lines of 4 KiB than with 64 to 256. drive_share_max where nothing is known.
  [[nodiscard]] static std::uint64_t requests_wanted_by(const std::string& drive);

  // Stays as long as this.
  SharedDrive& drive(const std::string& name);

  // Shares the drives anew if the last look is long enough ago: then `others` is called.
  void look(std::int64_t now_ns, const LookAtOthers& others);

 private:
  struct Watched {
    SharedDrive drive;
    OthersAtDrive others;
    std::uint64_t answers = 0;  // at the last look
    std::uint64_t answered_bytes = 0;
    std::uint64_t request_bytes = 4096;  // the mean of the last that were answered
    std::uint64_t crowded_looks = 0;     // since others came whom nobody remembered
    std::uint64_t looks_alone = 0;       // since others were there
  };

  void share(Watched& watched,
             std::string_view name,
             std::span<const node::SeenArray> others,
             std::int64_t now_ns) const;

  const std::size_t threads_;
  const RequestsWanted requests_wanted_;
  std::atomic<std::int64_t> looked_ns_{0};
  std::mutex mutex_;  // guards the map, but for each `drive`
  std::map<std::string, Watched> drives_;
  std::int64_t shared_ns_ = 0;
};

}  // namespace hippogriff::ondemand
