// CPU threads that stand for the lanes of a warp: what groups do is tested without a GPU.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace hippogriff {

// The threads of one crew call everything of a group together, as lanes do. As with lanes, votes
// and what is told order nothing in memory, for TSan to see: meet() does.
class Crew {
 public:
  static constexpr std::uint32_t most = 8;

  // What lanes of one group tell each other.
  struct Exchange {
    std::array<std::atomic<std::uint64_t>, most> said{};
    std::array<std::atomic<std::uint64_t>, most> steps{};
    std::unique_ptr<std::barrier<>> barrier;
  };

  explicit Crew(std::uint32_t size) : exchanges_(std::size_t{1} << size), all_(size) {
    for (std::uint32_t lanes = 1; lanes < exchanges_.size(); ++lanes) {
      exchanges_[lanes].barrier = std::make_unique<std::barrier<>>(std::popcount(lanes));
    }
  }

  // A group as include/hippogriff/array/group.hpp has them: one thread's part in it.
  class Member {
   public:
    Member(Crew& crew, std::uint32_t lanes, std::uint32_t lane)
        : crew_(&crew), lanes_(lanes), lane_(lane) {}

    [[nodiscard]] bool leads() const { return rank() == 0; }

    [[nodiscard]] std::uint32_t rank() const { return before_me(lanes_); }

    [[nodiscard]] std::uint32_t size() const {
      return static_cast<std::uint32_t>(std::popcount(lanes_));
    }

    void meet() const { here().barrier->arrive_and_wait(); }

    template <typename T>
    [[nodiscard]] T told(T value) const {
      value = told_by(static_cast<std::uint32_t>(std::countr_zero(lanes_)), value);
      meet();
      return value;
    }

    template <typename T>
    [[nodiscard]] T told_by(std::uint32_t voter, T value) const {
      say(static_cast<std::uint64_t>(value));
      const auto heard = static_cast<T>(said_by(voter));
      step();
      return heard;
    }

    [[nodiscard]] std::uint32_t vote(bool value) const { return who_says(value ? 1 : 0, 1); }

    [[nodiscard]] bool all(bool value) const {
      const bool everyone = vote(value) == lanes_;
      meet();
      return everyone;
    }

    [[nodiscard]] std::uint32_t leading(bool value) const {
      const std::uint32_t no = lanes_ & ~vote(value);
      return static_cast<std::uint32_t>(std::popcount(lanes_ & ((no & (0U - no)) - 1)));
    }

    [[nodiscard]] std::uint32_t before_me(std::uint32_t votes) const {
      return static_cast<std::uint32_t>(std::popcount(votes & ((1U << lane_) - 1)));
    }

    [[nodiscard]] Member with_same(std::uint64_t value) const {
      return {*crew_, who_says(value, value), lane_};
    }

   private:
    [[nodiscard]] Exchange& here() const { return crew_->exchanges_[lanes_]; }

    [[nodiscard]] bool is_here(std::uint32_t lane) const { return (lanes_ >> lane & 1U) != 0; }

    void say(std::uint64_t value) const {
      here().said[lane_].store(value, std::memory_order_relaxed);
      step();
    }

    [[nodiscard]] std::uint64_t said_by(std::uint32_t lane) const {
      return here().said[lane].load(std::memory_order_relaxed);
    }

    // Who says what is looked for, a bit each.
    [[nodiscard]] std::uint32_t who_says(std::uint64_t mine, std::uint64_t wanted) const {
      say(mine);
      std::uint32_t those = 0;
      for (std::uint32_t lane = 0; lane < most; ++lane) {
        those |= is_here(lane) && said_by(lane) == wanted ? 1U << lane : 0U;
      }
      step();
      return those;
    }

    // All have come as far.
    void step() const {
      const std::uint64_t mine = here().steps[lane_].load(std::memory_order_relaxed) + 1;
      here().steps[lane_].store(mine, std::memory_order_relaxed);
      for (std::uint32_t lane = 0; lane < most; ++lane) {
        while (is_here(lane) && here().steps[lane].load(std::memory_order_relaxed) < mine) {
          static_cast<void>(sched_yield());
        }
      }
    }

    Crew* crew_;
    std::uint32_t lanes_;
    std::uint32_t lane_;
  };

  // Runs `work(member)` on as many threads as the crew has.
  template <typename Work>
  void run(Work work) {
    std::vector<std::jthread> threads;
    for (std::uint32_t lane = 0; lane < all_; ++lane) {
      threads.emplace_back([this, lane, &work] { work(Member(*this, (1U << all_) - 1, lane)); });
    }
  }

 private:
  std::vector<Exchange> exchanges_;  // for each set of lanes
  std::uint32_t all_;                // at most `most`
};

}  // namespace hippogriff
