/* Reserving, waiting, granting and waking under aging_mmu; a transaction is one step here, which
 * lock.pml shows it to be.
 *
 * Checked: never more granted than there is; nobody overtaken more than BOUND times; with DEATHS=0
 * no wake-up is lost (no time-outs, so a sleeper that is forgotten is an invalid end state). With
 * deaths, at any step, sleepers also look themselves, and remove what the dead had. */
#ifndef CLIENTS
#define CLIENTS 4
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define CAPACITY 3
#define BOUND 1

byte size[CLIENTS];      /* granted */
byte wanted[CLIENTS];    /* 0: no reservation */
byte ticket[CLIENTS];
byte overtaken[CLIENTS];
bool alive[CLIENTS];
byte signal[CLIENTS];
bool to_wake[CLIENTS * CLIENTS];
byte next_ticket;
byte deaths;

#define waits(c) (wanted[c] > size[c])
#define step if :: skip :: deaths < DEATHS -> goto dead fi

/* policy.cpp: by ticket, each that fits, unless that overtakes somebody who is exhausted. */
inline serve(me) {
  d_step {
    free = CAPACITY;
    c = 0;
    do :: c < CLIENTS -> free = free - size[c]; c++ :: else -> break od;
    t = 0;
    stop = false;
    do
    :: t < next_ticket && !stop ->
      c = 0;
      do
      :: c < CLIENTS && waits(c) && ticket[c] == t ->
        o = 0;
        do
        :: o < CLIENTS ->
          if
          :: waits(o) && ticket[o] < t && overtaken[o] >= BOUND -> stop = true
          :: else
          fi;
          o++
        :: else -> break
        od;
        if
        :: !stop && wanted[c] <= free ->
          size[c] = wanted[c];
          free = free - wanted[c];
          to_wake[me * CLIENTS + c] = true;
          o = 0;
          do
          :: o < CLIENTS ->
            if
            :: waits(o) && ticket[o] < t -> overtaken[o]++; assert(overtaken[o] <= BOUND)
            :: else
            fi;
            o++
          :: else -> break
          od
        :: else
        fi;
        c++
      :: c < CLIENTS && !(waits(c) && ticket[c] == t) -> c++
      :: else -> break
      od;
      t++
    :: else -> break
    od;
    free = 0;
    c = 0;
    do :: c < CLIENTS -> free = free + size[c]; c++ :: else -> break od;
    assert(free <= CAPACITY);
    free = 0; c = 0; o = 0; t = 0; stop = false
  }
}

inline reap(me) {
  c = 0;
  do
  :: c < CLIENTS ->
    if
    :: !alive[c] && wanted[c] > 0 -> size[c] = 0; wanted[c] = 0; overtaken[c] = 0
    :: else
    fi;
    c++
  :: else -> break
  od;
  c = 0
}

inline wake_all(me) {
  w = 0;
  do
  :: w < CLIENTS ->
    if
    :: to_wake[me * CLIENTS + w] ->
      atomic { signal[w] = 1 - signal[w]; to_wake[me * CLIENTS + w] = false }
      step
    :: else
    fi;
    w++
  :: else -> break
  od;
  w = 0
}

proctype client(byte me; byte amount) {
  byte free, c, t, o, w, seen;
  bool stop;
  step;
  atomic { wanted[me] = amount; size[me] = 0; ticket[me] = next_ticket; next_ticket++;
           overtaken[me] = 0; serve(me) }
  step;
  wake_all(me);
look:
  step;
  atomic { seen = signal[me]; stop = !waits(me) }
  if
  :: stop -> stop = false; goto granted
  :: else
  fi;
  step;
  /* the futex: until the word is another, or the time is over */
  if
  :: signal[me] != seen
  :: timeout && deaths > 0 -> atomic { reap(me); serve(me) } wake_all(me)
  fi;
  goto look;
granted:
  step;
  atomic { wanted[me] = 0; size[me] = 0; serve(me) }
  step;
  wake_all(me);
  goto done;
dead:
  atomic {
    deaths++;
    alive[me] = false;
    w = 0;
    do :: w < CLIENTS -> to_wake[me * CLIENTS + w] = false; w++ :: else -> break od
  }
done:
  skip
}

init {
  atomic {
    byte n = 0;
    do :: n < CLIENTS -> alive[n] = true; n++ :: else -> break od;
    run client(0, 2);
    run client(1, 3);
    run client(2, 1);
    run client(3, 2)
  }
}
