/* The queue pair: tickets, turns, marks, both locks, the rings, and a controller that answers in any order;
 * with PENDING, a queue of commands whose submitters go away, and which whoever comes by settles.
 *
 * Checked: a command is written into a slot that nobody uses, fetched whole, once, and answered once, to
 * its own submitter, or settled once; no completion is overwritten before it was taken; nobody waits for
 * ever, and what is pending can always be settled (an invalid end state). Counters are numbers modulo COUNT
 * and begin just before the wrap.
 * include/hippogriff/array/queue.hpp, pending.hpp and controller_queue.cpp are what this models; names are
 * theirs. */
#ifndef DEPTH
#define DEPTH 2
#endif
#ifndef COUNT
#define COUNT 16        /* numbers that a counter has: 2^64 in the code */
#endif
#ifndef SUBMITTERS
#define SUBMITTERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef BATCH
#define BATCH 1        /* commands that a submitter has under way together, at most half of DEPTH */
#endif
#ifndef PENDING
#define PENDING 0      /* 1: nobody waits for commands */
#endif
#define BASE (COUNT - 1)
#define RING (2 * DEPTH)  /* of completions */

#define minus(a, b) ((a + COUNT - b) % COUNT)
#define before(a, b) (minus(b, a) > 0 && minus(b, a) < COUNT / 2)
#define slot_of(n) ((n) % DEPTH)
#define phase_of(n) ((n / RING) % 2)
#define nth(k) ((first + k) % COUNT)

byte ticket = BASE, tail = BASE, submission_head = BASE, completion_head = BASE;
byte fetched = BASE, posted = BASE;  /* the controller's */
byte bell = BASE % DEPTH;
bool tail_lock, head_lock;
byte turn[DEPTH], result[DEPTH];
bool mark[DEPTH];
byte pending[DEPTH];       /* 1: nobody waits; 2: taken by who settles */
byte command[DEPTH];       /* 0: being written */
byte held[DEPTH];          /* by the controller, not yet answered */
byte entry_result[RING], entry_slot[RING], entry_head[RING];
bool entry_phase[RING];

/* What the code does not have: who uses a slot, what was served, which completions are unread. */
byte user[DEPTH];
bool served[SUBMITTERS * ROUNDS * BATCH + 1];
bool unread[RING];
byte unsettled;            /* pending commands */

#define can_move (!tail_lock && mark[slot_of(tail)] && tail != (submission_head + DEPTH - 1) % COUNT)
#define can_drain (!head_lock && entry_phase[completion_head % RING] == phase_of(completion_head))

inline move_tail() {
  if
  :: atomic { !tail_lock -> tail_lock = true; position = tail }
     limit = (submission_head + DEPTH - 1) % COUNT;
     do
     :: atomic { position != limit && mark[slot_of(position)] -> mark[slot_of(position)] = false; position = (position + 1) % COUNT }
     :: atomic { position == limit || !mark[slot_of(position)] -> break }
     od;
     if
     :: position != tail -> tail = position; bell = slot_of(position)
     :: else
     fi;
     tail_lock = false
  :: tail_lock
  fi
}

inline drain() {
  if
  :: atomic { !head_lock -> head_lock = true; position = completion_head }
     do
     :: entry_phase[position % RING] == phase_of(position) ->
        here = entry_slot[position % RING];
        assert(slot_of(turn[here]) == here && before(turn[here], tail));
        result[here] = entry_result[position % RING];
        turn[here] = (turn[here] + 1) % COUNT;
        submission_head = (submission_head + slot_of(minus(entry_head[position % RING], slot_of(submission_head)))) % COUNT;
        unread[position % RING] = false;
        position = (position + 1) % COUNT
     :: else -> break
     od;
     atomic { completion_head = position; head_lock = false }
  :: head_lock
  fi
}

/* A look, the word by compare-and-swap, another look: what was looked at may have been settled. */
#define answered(slot) (pending[slot] == 1 && slot_of(turn[slot]) != slot)

inline settle(slot) {
  if
  :: atomic { pending[slot] == 1 -> pending[slot] = 2 }
     if
     :: slot_of(turn[slot]) == slot -> pending[slot] = 1
     :: else ->
        assert(result[slot] == user[slot] && served[user[slot]]);
        pending[slot] = 0;
        atomic { user[slot] = 0; unsettled--; turn[slot] = (turn[slot] + COUNT - 1 + DEPTH) % COUNT }
     fi
  :: pending[slot] != 1
  fi
}

#define has_room (turn[slot_of(ticket)] == ticket && turn[slot_of(ticket + 1)] == (ticket + 1) % COUNT)

/* As QueuePair::try_take, of one ticket; a command in it, left. */
inline leave() {
  atomic {
    if
    :: has_room ->
       first = ticket;
       ticket = (ticket + 1) % COUNT;
       assert(user[slot_of(first)] == 0 && !mark[slot_of(first)] && pending[slot_of(first)] == 0);
       user[slot_of(first)] = name;
       k = 1
    :: else -> k = 0
    fi
  }
  if
  :: k == 1 ->
     command[slot_of(first)] = 0;
     command[slot_of(first)] = name;
     atomic { unsettled++; pending[slot_of(first)] = 1 }
     mark[slot_of(first)] = true;
     if
     :: can_move -> move_tail()
     :: !can_move
     fi
  :: else
  fi
}

#define something_to_settle (answered(0) || answered(1) || (DEPTH > 2 && (answered(2 % DEPTH) || answered(3 % DEPTH))))

/* Whoever waits, or finds no room. */
inline help() {
  if
  :: can_drain -> drain()
  :: can_move -> move_tail()
  :: answered(0) -> settle(0)
  :: answered(1) -> settle(1)
#if DEPTH > 2
  :: answered(2) -> settle(2)
  :: answered(3) -> settle(3)
#endif
  :: else  /* somebody else was faster */
  fi
}

proctype submitter(byte me) {
  byte first, round, position, limit, here, name, k;
  do
  :: round == ROUNDS -> break
#if PENDING
  :: round < ROUNDS ->
     name = me * ROUNDS + round + 1;
     do
     :: k == 1 -> break
     :: k == 0 && has_room -> leave()
     :: k == 0 && (can_drain || can_move || something_to_settle) -> help()
     od;
     k = 0;
     round++
#else
  :: else ->
     name = (me * ROUNDS + round) * BATCH + 1;  /* of the batch's first command */
     atomic { first = ticket; ticket = (ticket + BATCH) % COUNT }
     k = 0;
     do
     :: k == BATCH -> break
     :: else ->
        do
        :: turn[slot_of(nth(k))] == nth(k) -> break
        :: can_drain -> drain()
        od;
        k++
     od;
     k = 0;
     do
     :: k == BATCH -> break
     :: else ->
        assert(user[slot_of(nth(k))] == 0 && !mark[slot_of(nth(k))]);
        user[slot_of(nth(k))] = name + k;
        command[slot_of(nth(k))] = 0;
        command[slot_of(nth(k))] = name + k;
        k++
     od;
     k = 0;
     do
     :: k == BATCH -> break
     :: else -> mark[slot_of(nth(k))] = true; k++
     od;
     k = 0;
     do
     :: k == BATCH -> break
     :: k < BATCH && turn[slot_of(nth(k))] == (nth(k) + 1) % COUNT -> k++
     :: k < BATCH && !before(nth(BATCH - 1), tail) && can_move -> move_tail()
     :: k < BATCH && can_drain -> drain()
     od;
     k = 0;
     do
     :: k == BATCH -> break
     :: else ->
        assert(result[slot_of(nth(k))] == name + k && served[name + k]);
        atomic { user[slot_of(nth(k))] = 0; turn[slot_of(nth(k))] = (nth(k) + DEPTH) % COUNT }
        k++
     od;
     k = 0;
     round++
#endif
  od;
  do  /* who waits for the places of all that is pending */
  :: unsettled == 0 -> break
  :: unsettled != 0 && (can_drain || can_move || something_to_settle) -> help()
  od
}

inline post(slot) {
  assert(!unread[posted % RING]);
  entry_result[posted % RING] = held[slot];
  atomic {
    entry_slot[posted % RING] = slot;
    entry_head[posted % RING] = slot_of(fetched);
    entry_phase[posted % RING] = phase_of(posted);
    unread[posted % RING] = true;
    held[slot] = 0;
    posted = (posted + 1) % COUNT
  }
}

active proctype controller() {
end:
  do
  :: bell != slot_of(fetched) ->
     atomic {
       assert(command[slot_of(fetched)] != 0 && held[slot_of(fetched)] == 0);
       assert(!served[command[slot_of(fetched)]]);
       held[slot_of(fetched)] = command[slot_of(fetched)];
       served[held[slot_of(fetched)]] = true;
       fetched = (fetched + 1) % COUNT
     }
  :: held[0] != 0 -> post(0)
  :: held[1] != 0 -> post(1)
#if DEPTH > 2
  :: held[2] != 0 -> post(2)
  :: held[3] != 0 -> post(3)
#endif
  od
}

init {
  byte i, n;
  atomic {
    i = 0;
    n = BASE;
    do
    :: i < DEPTH -> turn[slot_of(n)] = n; n = (n + 1) % COUNT; i++
    :: else -> break
    od;
    i = 0;
    n = BASE;
    do
    :: i < RING -> entry_phase[n % RING] = !phase_of(n); n = (n + 1) % COUNT; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < SUBMITTERS -> run submitter(i); i++
    :: else -> break
    od
  }
}
