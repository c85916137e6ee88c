// CPU threads that stand for the lanes of a warp: what groups do is tested without a GPU.
#pragma once

#include <barrier>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace hippogriff {

// The threads of one crew call everything of a group together, as lanes do.
class Crew {
 public:
  explicit Crew(std::uint32_t size) : said_(size), all_(size) {}

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

    void meet() const { crew_->barrier_of(lanes_).arrive_and_wait(); }

    template <typename T>
    [[nodiscard]] T told(T value) const {
      return told_by(static_cast<std::uint32_t>(std::countr_zero(lanes_)), value);
    }

    template <typename T>
    [[nodiscard]] T told_by(std::uint32_t voter, T value) const {
      crew_->said_[lane_] = static_cast<std::uint64_t>(value);
      meet();
      const auto heard = static_cast<T>(crew_->said_[voter]);
      meet();
      return heard;
    }

    [[nodiscard]] std::uint32_t vote(bool value) const {
      crew_->said_[lane_] = value ? 1 : 0;
      meet();
      std::uint32_t votes = 0;
      for (std::uint32_t lane = 0; lane < crew_->said_.size(); ++lane) {
        votes |= (lanes_ >> lane & 1U) != 0 && crew_->said_[lane] != 0 ? 1U << lane : 0U;
      }
      meet();
      return votes;
    }

    [[nodiscard]] bool all(bool value) const { return vote(value) == lanes_; }

    [[nodiscard]] std::uint32_t leading(bool value) const {
      const std::uint32_t no = lanes_ & ~vote(value);
      return static_cast<std::uint32_t>(std::popcount(lanes_ & ((no & (0U - no)) - 1)));
    }

    [[nodiscard]] std::uint32_t before_me(std::uint32_t votes) const {
      return static_cast<std::uint32_t>(std::popcount(votes & ((1U << lane_) - 1)));
    }

    [[nodiscard]] Member with_same(std::uint64_t value) const {
      crew_->said_[lane_] = value;
      meet();
      std::uint32_t same = 0;
      for (std::uint32_t lane = 0; lane < crew_->said_.size(); ++lane) {
        same |= (lanes_ >> lane & 1U) != 0 && crew_->said_[lane] == value ? 1U << lane : 0U;
      }
      meet();
      return {*crew_, same, lane_};
    }

   private:
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
  std::barrier<>& barrier_of(std::uint32_t lanes) {
    const std::scoped_lock lock(mutex_);
    auto& barrier = barriers_[lanes];
    if (!barrier) {
      barrier = std::make_unique<std::barrier<>>(std::popcount(lanes));
    }
    return *barrier;
  }

  std::vector<std::uint64_t> said_;
  std::uint32_t all_;  // at most 31
  std::mutex mutex_;
  std::map<std::uint32_t, std::unique_ptr<std::barrier<>>> barriers_;
};

}  // namespace hippogriff
