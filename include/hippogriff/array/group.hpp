// Who does something together: a thread for itself, or lanes of a warp.
//
// What takes a group is called by all of it, with the same arguments unless it says otherwise. The
// leader does what one must do and tells the others.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_GROUP_HPP_
#define HIPPOGRIFF_ARRAY_GROUP_HPP_

#include <hippogriff/array/portable.hpp>

namespace hippogriff::ondemand {

// A CPU thread, or a lane for itself.
struct Alone {
  [[nodiscard]] HIPPO_ANYWHERE static Alone with_same(uint64_t /*value*/) { return {}; }

  [[nodiscard]] HIPPO_ANYWHERE static bool leads() { return true; }

  [[nodiscard]] HIPPO_ANYWHERE static uint32_t rank() { return 0; }

  [[nodiscard]] HIPPO_ANYWHERE static uint32_t size() { return 1; }

  HIPPO_ANYWHERE static void meet() {}

  template <typename T>
  [[nodiscard]] HIPPO_ANYWHERE static T told(T value) {
    return value;
  }

  [[nodiscard]] HIPPO_ANYWHERE static bool all(bool value) { return value; }

  [[nodiscard]] HIPPO_ANYWHERE static uint32_t leading(bool value) { return value ? 1 : 0; }

  [[nodiscard]] HIPPO_ANYWHERE static uint32_t vote(bool value) { return value ? 1 : 0; }

  [[nodiscard]] HIPPO_ANYWHERE static uint32_t before_me(uint32_t /*votes*/) { return 0; }

  template <typename T>
  [[nodiscard]] HIPPO_ANYWHERE static T told_by(uint32_t /*voter*/, T value) {
    return value;
  }
};

// Lanes of a warp that all come here. On the host, where nobody calls it, one.
class Lanes {
 public:
  HIPPO_ANYWHERE explicit Lanes(uint32_t mask) : mask_(mask) {}

  // All 32 lanes of the warp.
  HIPPO_ANYWHERE static Lanes warp() { return Lanes(~uint32_t{0}); }

#ifdef __CUDACC__
  // Those that happen to be here together. `zero` is one that the compiler does not know.
  //
  // Lanes of another such group may by now run side by side with these. ptxas (CUDA 13.0) takes
  // what __activemask gave for the same in all lanes that do, and looks at one lane's to decide
  // whether others must be waited for. So lanes went on without their group, who waited for ever
  // (H100), and ballots had other groups' bits in them. With a lane's number in the mask, if only
  // by a zero, ptxas looks at all lanes' masks.
  __device__ static Lanes here(uint32_t zero) {
    uint32_t lane = 0;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return Lanes(__activemask() | (lane & zero));
  }
#endif

  // Those of these lanes that have the same value.
  [[nodiscard]] HIPPO_ANYWHERE Lanes with_same([[maybe_unused]] uint64_t value) const {
#ifdef __CUDA_ARCH__
    meet();  // see vote()
    return Lanes(__match_any_sync(mask_, static_cast<unsigned long long>(value)) & mask_);
#else
    return *this;
#endif
  }

  [[nodiscard]] HIPPO_ANYWHERE bool leads() const { return rank() == 0; }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t rank() const { return before_me(mask_); }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t size() const { return count_ones(mask_); }

  HIPPO_ANYWHERE void meet() const {
#ifdef __CUDA_ARCH__
    __syncwarp(mask_);
#endif
  }

  // What the leader says; and what it has seen in memory, the others see.
  template <typename T>
  [[nodiscard]] HIPPO_ANYWHERE T told(T value) const {
    value = told_by(trailing_ones(~uint64_t{mask_}), value);
    meet();  // a shuffle orders nothing in memory
    return value;
  }

  // Whether all say yes; what they have seen in memory, all see.
  [[nodiscard]] HIPPO_ANYWHERE bool all(bool value) const { return vote(value) == mask_; }

  // How many, from the first of the group on, say yes before one says no.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t leading(bool value) const {
    const uint32_t no = mask_ & ~vote(value);
    const uint32_t before = (no & (0U - no)) - 1;
    return count_ones(mask_ & before);
  }

  // Who says yes, a bit each.
  //
  // Ballots are kept to the group's lanes, and lanes wait for each other around them: other lanes'
  // bits in them, hundreds a second, are what was first seen of what here() tells.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t vote(bool value) const {
    meet();
    const uint32_t yes = ballot(value);
    meet();
    return yes;
  }

  // The same without the waits, for what every hit passes, in the function that formed the group.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t ballot(bool value) const {
#ifdef __CUDA_ARCH__
    return __ballot_sync(mask_, value ? 1 : 0) & mask_;
#else
    return value ? 1 : 0;
#endif
  }

  // How many of those come before this lane.
  [[nodiscard]] HIPPO_ANYWHERE static uint32_t before_me([[maybe_unused]] uint32_t votes) {
#ifdef __CUDA_ARCH__
    uint32_t below_me = 0;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below_me));
    return count_ones(votes & below_me);
#else
    return 0;
#endif
  }

  // What that one says, by the number of its bit.
  template <typename T>
  [[nodiscard]] HIPPO_ANYWHERE T told_by([[maybe_unused]] uint32_t voter, T value) const {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(T) == 8) {
      return __shfl_sync(mask_, static_cast<unsigned long long>(value), static_cast<int>(voter));
    } else {
      return static_cast<T>(
          __shfl_sync(mask_, static_cast<uint32_t>(value), static_cast<int>(voter)));
    }
#else
    return value;
#endif
  }

 private:
  uint32_t mask_;
};

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_GROUP_HPP_
