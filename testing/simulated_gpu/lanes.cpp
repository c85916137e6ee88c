// Lanes that wait for each other.
#include "testing/simulated_gpu/lanes.hpp"

namespace hippogriff::simulated {

const std::uint64_t* Warp::say(std::uint32_t mask,
                               std::uint32_t lane,
                               std::uint64_t what,
                               Act act) {
  WeakMemory& memory = *WeakMemory::of_this_run();
  Machine& machine = memory.machine();
  Exchange& exchange = exchanges_[mask];
  const std::uint64_t parity = exchange.turn[lane]++ % 2;
  if (exchange.here == 0) {
    exchange.met[parity] = VectorClock{};
    exchange.act = act;
  } else if (exchange.act != act) {
    machine.fail("lanes of a warp do different things together");
  }
  exchange.said[parity][lane] = what;
  memory.come(exchange.met[parity]);
  if (++exchange.here == static_cast<std::uint32_t>(std::popcount(mask))) {
    exchange.here = 0;
    for (const int thread : exchange.waiting) {
      machine.unblock(thread);
    }
    exchange.waiting.clear();
    machine.may_switch();
  } else {
    exchange.waiting.push_back(machine.current());
    machine.block();
  }
  if (act == Act::meet) {
    memory.leave(exchange.met[parity]);
  }
  return exchange.said[parity];
}

}  // namespace hippogriff::simulated
