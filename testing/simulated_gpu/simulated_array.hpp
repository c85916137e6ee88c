// An array in storage whose threads, controller and memory are a simulated machine's.
#pragma once

#include "array/controller_queue.hpp"
#include "testing/simulated_gpu/lanes.hpp"

#include <hippogriff/array/cursor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace hippogriff::simulated {

struct ArrayOptions {
  std::uint64_t seed = 1;
  std::uint32_t warps = 2;
  std::uint32_t lanes = 4;  // of each
  std::uint64_t elements = 1000;
  std::uint32_t lines = 8;  // of the cache
  std::uint32_t queues = 1;
  std::uint32_t queue_depth = 4;
  std::uint64_t counter_base = 0;
  bool writable = false;
  bool answers_with_addresses = true;  // to reads, but for some
  std::uint64_t switch_odds = 4;
  std::uint64_t stale_of_16 = 4;

  // As different as seeds are.
  static ArrayOptions of(std::uint64_t seed);
};

std::ostream& operator<<(std::ostream& out, const ArrayOptions& options);

// What element `index` is, or after it was written with another `shift`.
std::uint64_t element(std::uint64_t index, std::uint64_t shift = 0);

class SimulatedArray {
 public:
  // One lane of a kernel.
  struct Thread {
    SimulatedArray& array;
    SimulatedLanes warp;
    std::uint64_t warp_number;
    std::uint64_t number;  // among all
  };

  explicit SimulatedArray(const ArrayOptions& options);

  [[nodiscard]] const ArrayOptions& options() const { return options_; }

  [[nodiscard]] const ondemand::Cache& cache() const { return cache_; }

  [[nodiscard]] std::span<std::uint64_t> stored() const { return {file_, options_.elements}; }

  [[nodiscard]] std::uint64_t thread_count() const {
    return std::uint64_t{options_.warps} * options_.lanes;
  }

  // Runs a thread for each lane of each warp, and the controller, to their end. Empty, or what went
  // wrong: how waits ended, races, threads that wait for each other.
  std::string launch(const std::function<void(const Thread&)>& kernel);

 private:
  struct UnderWay {
    std::size_t queue = 0;
    ondemand::Command command;
    std::uint64_t due = 0;  // steps
  };

  template <typename T>
  T* place(std::size_t count);
  void set_up();
  void control(const std::uint64_t& threads_left);
  void fetch_from(std::size_t queue);
  void answer_what_is_due();
  void answer(const UnderWay& command);
  [[nodiscard]] std::uint64_t* in_file(const ondemand::Command& command) const;
  [[nodiscard]] std::string ending() const;

  ArrayOptions options_;
  std::vector<std::byte> memory_;
  std::size_t used_ = 0;
  std::uint64_t* file_ = nullptr;
  ondemand::ReachedWords* words_ = nullptr;
  ondemand::Cache cache_;
  std::vector<ondemand::ControllerQueue> queues_;
  std::vector<UnderWay> under_way_;  // the controller's
  std::uint64_t launches_ = 0;
};

}  // namespace hippogriff::simulated
