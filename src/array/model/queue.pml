/* The queue pair: tickets, turns, marks, both locks, the rings, and a controller that answers in any order.
 *
 * Checked: a command is written into a slot that nobody uses, fetched whole, once, and answered once, to
 * its own submitter; no completion is overwritten before it was taken; nobody waits for ever (an
 * invalid end state). Counters are numbers modulo COUNT and begin just before the wrap.
 * include/hippogriff/array/queue.hpp and controller_queue.cpp are what this models; names are theirs. */
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
#define BASE (COUNT - 1)
#define RING (2 * DEPTH)  /* of completions */

#define minus(a, b) ((a + COUNT - b) % COUNT)
#define before(a, b) (minus(b, a) > 0 && minus(b, a) < COUNT / 2)
#define slot_of(n) (n % DEPTH)
#define phase_of(n) ((n / RING) % 2)
#define nth(k) ((first + k) % COUNT)

byte ticket = BASE, tail = BASE, submission_head = BASE, completion_head = BASE;
byte fetched = BASE, posted = BASE;  /* the controller's */
byte bell = BASE % DEPTH;
bool tail_lock, head_lock;
byte turn[DEPTH], result[DEPTH];
bool mark[DEPTH];
byte command[DEPTH];       /* 0: being written */
byte held[DEPTH];          /* by the controller, not yet answered */
byte entry_result[RING], entry_slot[RING], entry_head[RING];
bool entry_phase[RING];

/* What the code does not have: who uses a slot, what was served, which completions are unread. */
byte user[DEPTH];
bool served[SUBMITTERS * ROUNDS * BATCH + 1];
bool unread[RING];

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

proctype submitter(byte me) {
  byte first, round, position, limit, here, name, k;
  do
  :: round == ROUNDS -> break
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
