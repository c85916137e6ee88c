/* Making a segment while others make theirs and somebody removes them: clients die at any step, and
 * new ones take their slots. A device has room for one: who reserves it is alone.
 *
 * Who has the lock of a removed segment's books loses it whenever its maker likes, and may go on then.
 *
 * Checked: no two clients hold the device, in whichever segments; nobody is stuck (an invalid end
 * state). segment.cpp, legacy.cpp, Attachment::commit and transaction.hpp are what this models. */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef FILES
#define FILES 3
#endif
#ifndef REMOVALS
#define REMOVALS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#define NONE FILES
#define TAKEN (CLIENTS + 1)

byte name = NONE;    /* the file that has it */
byte files;          /* that were ever linked */
bool removed[FILES];
bool finished[FILES];
byte making[FILES];  /* the maker's lock: client + 1 */
byte owner[FILES];   /* the lock of its books: client + 1, or TAKEN away */
byte generation[FILES];
byte generations;
bool holds[12];      /* by file and client: its books */
byte origin[12];     /* the file where the slot's lock is, + 1 */
bool locked[12];     /* that lock, which the kernel keeps */
bool has[CLIENTS];   /* what a client believes */
byte holders;
byte deaths;

#define at(f, c) ((f) * CLIENTS + (c))
#define lives(f, c) (origin[at(f, c)] != 0 && locked[at(origin[at(f, c)] - 1, c)])
#if DEATHS
#define step if :: skip :: deaths < DEATHS -> goto dead fi
#else
#define step skip
#endif

/* Whichever file has the name by now. */
inline unlink_name() {
  atomic {
    if
    :: name != NONE -> removed[name] = true; name = NONE
    :: else
    fi
  }
}

/* Leaves all files but two. */
inline close_but(first, second) {
  d_step {
    f = 0;
    do
    :: f < FILES ->
      if
      :: f != first && f != second -> locked[at(f, me)] = false
      :: else
      fi;
      f++
    :: else -> break
    od;
    f = 0
  }
}

/* The latest file that a client lives in has what it holds. */
inline look_at(g) {
  d_step {
    c = 0;
    do
    :: c < CLIENTS ->
      if
      :: lives(g, c) && (from[c] == NONE || generation[g] > generation[from[c]]) -> from[c] = g
      :: else
      fi;
      c++
    :: else -> break
    od;
    c = 0
  }
}

inline write_contents(f) {
  d_step {
    c = 0;
    do
    :: c < CLIENTS ->
      if
      :: from[c] != NONE ->
        holds[at(f, c)] = holds[at(from[c], c)];
        origin[at(f, c)] = origin[at(from[c], c)];
        from[c] = NONE
      :: else -> holds[at(f, c)] = false; origin[at(f, c)] = 0
      fi;
      c++
    :: else -> break
    od;
    c = 0
  }
}

/* Reserves, or releases, unless another one holds: in the books. */
inline commit() {
  d_step {
    free = true;
    c = 0;
    do
    :: c < CLIENTS ->
      free = free && !(c != me && lives(here, c) && holds[at(here, c)]);
      c++
    :: else -> break
    od;
    c = 0;
    holds[at(here, me)] = !has[me] && free;
    free = false
  }
}

/* What it believes after that. */
inline learn() {
  d_step {
    if
    :: has[me] && !holds[at(here, me)] -> has[me] = false; holders--
    :: !has[me] && holds[at(here, me)] -> has[me] = true; holders++
    :: else
    fi
  }
  assert(holders <= 1)
}

proctype client(byte me) {
  byte here, next, round, f, g, c;
  byte from[CLIENTS];
  bool free;
start:
  skip;
  d_step {
    here = NONE;
    do
    :: c < CLIENTS -> from[c] = NONE; c++
    :: else -> break
    od;
    c = 0
  }
attach:
  step;
  next = name;
  if
  :: next == NONE ->
    step;
    atomic {
      if
      :: name == NONE && files < FILES -> name = files; files++
      :: name == NONE && files == FILES -> goto done
      :: else
      fi
    }
    goto attach
  :: else
  fi;
  step;
  if
  :: finished[next] -> goto join
  :: atomic { !finished[next] && making[next] == 0 ->
       making[next] = me + 1; generations++; generation[next] = generations }
  :: !finished[next] && making[next] != 0 ->
    if
    :: making[next] == 0 || finished[next] || removed[next] -> next = 0; goto attach
    :: name == next && !finished[next] -> step; unlink_name(); next = 0; goto attach /* too long */
    fi
  fi;
  do
  :: g < FILES && removed[g] && finished[g] -> step;
    if
    :: atomic { owner[g] == 0 || owner[g] == TAKEN -> look_at(g); g++ }
    :: atomic { owner[g] != 0 && owner[g] != TAKEN -> owner[g] = TAKEN }
    fi
  :: g < FILES && !(removed[g] && finished[g]) -> g++
  :: g == FILES -> break
  od;
  atomic { g = 0; write_contents(next) }
  step;
  if
  :: removed[next] -> making[next] = 0; next = 0; goto attach
  :: else
  fi;
  step;
  atomic { finished[next] = true; making[next] = 0 }
join:
  step;
  atomic { locked[at(next, me)] = true; origin[at(next, me)] = next + 1; close_but(next, here) }
  step;
  atomic {
    if
    :: removed[next] -> next = 0; goto attach
    :: else -> here = next; next = 0; close_but(here, here)
    fi
  }
transact:
  step;
  atomic { owner[here] == 0 || owner[here] == TAKEN -> owner[here] = me + 1 }
  step;
  atomic {
    if
    :: removed[here] ->
      if
      :: owner[here] == me + 1 -> owner[here] = 0
      :: else
      fi;
      goto attach
    :: else
    fi
  };
  step;
  commit();
  step;
  if
  :: owner[here] == me + 1
  :: else -> goto attach
  fi;
  learn();
  step;
  atomic {
    if
    :: owner[here] == me + 1 -> owner[here] = 0
    :: else
    fi
  };
  round++;
  if
  :: round < ROUNDS -> goto transact
  :: else -> goto done
  fi;
dead:
  atomic {
    deaths++;
    f = 0;
    do
    :: f < FILES ->
      locked[at(f, me)] = false;
      if
      :: making[f] == me + 1 -> making[f] = 0
      :: else
      fi;
      if
      :: owner[f] == me + 1 -> owner[f] = 0
      :: else
      fi;
      f++
    :: else -> break
    od;
    f = 0; g = 0; next = 0; round = 0;
    if
    :: has[me] -> has[me] = false; holders--
    :: else
    fi;
    goto start
  }
done:
  skip
}

proctype remover() {
  byte removals;
  do
  :: removals < REMOVALS -> removals++; unlink_name()
  :: removals < REMOVALS -> break
  :: else -> break
  od
}

init {
  byte n;
  atomic {
    do
    :: n < CLIENTS -> run client(n); n++
    :: else -> break
    od;
    run remover()
  }
}
