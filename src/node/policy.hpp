// Who of the waiting is served next, when memory is there.
#pragma once

#include "node/books.hpp"

#include <cstdint>

namespace hippogriff::node {

// Grants what the books' policy grants on one device now, and adds the clients of those granted to
// `granted`. To be called after every change: afterwards nothing that the policy would grant waits.
// Who began to wait later than now, by another clock, begins now.
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
// outside the node, or kept for contexts, is left out of this account.
//
// One that is new is barred while what others keep leaves too little for it: until one of those
// that bar it has ended. Where nothing is held and the policy lets nobody go on because of that,
// whatever is given back outside, those who bar and are not barred come first: they delay nobody
// who was not waiting for their end already.
void serve(Books& books, std::uint32_t device, std::int64_t now_ns, ClientSet& granted);

// The id of the one that has to be refused since nobody of those that wait can ever go on; 0 where
// somebody can, or holds memory and waits for nothing. What is used outside may be given back and
// those that were left for their first use may end: neither counts. The last who asked to grow,
// else the largest (of equals the last) that is new and keeps something.
//
// That nobody waits for ever, if all that hold memory or were left for their first use end:
// - New, barred by one that is left: until that one ends, or asks and is new as well.
// - Two that are new. If neither bars the other the policy serves one, then the other. If only the
//   first is barred, a request that keeps nothing bars nobody, and the policy puts the first first:
//   the second is let past, and the first has its turn when that has ended. If both are barred the
//   larger is refused: its context ends with it, and then the other can go on.
// - More of them: some of those that keep is not barred, and is let past; or all are, and the
//   largest is refused; one fewer is left each time. When none keeps anything nobody is barred.
// - New, behind one that grows and cannot while the new one keeps something: the growth is refused.
// A request can be barred again and again by commands that come after it.
std::uint64_t to_refuse(const Books& books, std::uint32_t device, std::int64_t now_ns);

}  // namespace hippogriff::node
