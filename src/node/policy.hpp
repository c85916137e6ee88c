// Who of the waiting is served next, when memory is there.
#pragma once

#include "node/books.hpp"

#include <cstdint>

namespace hippogriff::node {

// Grants what the books' policy grants on one device now, and adds the clients of those granted to
// `granted`. To be called after every change: afterwards nothing that the policy would grant waits.
//
// Growth first: reservations that hold memory and want more, by ticket, each that fits. While one
// of them waits, fifo, priority_fifo and priority_mmu grant nothing else.
//
// fifo (equation 6.1): by ticket, up to the first that does not fit.
// mmu (6.2): by ticket, every one that fits.
// priority_fifo, priority_mmu (6.3, 6.4): the same within the class of the highest priority that
// waits; when all of a class is served, the next class is the highest.
//
// aging_mmu: as mmu, but a request is exhausted when it has been overtaken `grants_max` times or
// waited for `wait_ns_max`, and nothing younger that holds nothing is granted while it waits.
//
// Bound: (1) Nobody is overtaken more than K = grants_max times. `overtaken` of a waiting request
// grows only when a younger one is granted, by one, and that needs overtaken < K.
// (2) If no reservation lives for longer than H from its first grant, no request for a new one
// waits for longer than T + (a + 1) H, where T = wait_ns_max and a is the number of older requests
// that wait when it comes. Proof: let r come at t. From t + T on r and all older ones are
// exhausted, so new memory goes only to older ones or to r. Let x be the oldest of them that waits
// then. While x is the oldest nothing else begins: all others are younger than x. What is held ends
// within H; then all of the device is free and x, which is not larger than it, is granted. Each of
// the a + 1 takes its turn so within H. Growth is part of a reservation's life, and memory used
// outside the node is left out of this account.
void serve(Books& books, std::uint32_t device, std::int64_t now_ns, ClientSet& granted);

}  // namespace hippogriff::node
