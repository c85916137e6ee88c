/* A command whose reservation was left for its first use: its member processes claim it, beside a
 * client that wants memory of its own, under fifo. A transaction is one step, as in waiting.pml.
 *
 * Checked: never more promised and kept than there is; the command is there as long as a member is;
 * with DEATHS=0 no wake-up is lost (an invalid end state). With deaths, at any step, sleepers also
 * look themselves, take back what a dead asker wanted, and remove the command when all are dead. */
#ifndef MEMBERS
#define MEMBERS 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define CAPACITY 4
#define WANT 3 /* by the command */
#define KEPT 1 /* of it, for contexts, until it is granted */
#define OTHER_WANT 2
#define NOBODY MEMBERS

mtype = { deferred, asked, granted, gone };

mtype record = deferred;
byte asker = NOBODY;
byte ticket, next_ticket = 1;
bool alive[MEMBERS];
byte members_left = MEMBERS;
bool command_signal; /* the leader's: all members sleep on it */

byte other_size, other_ticket;
bool other_waits, other_signal;
byte deaths;

#define kept ((record == deferred || record == asked) -> KEPT : 0)
#define held ((record == granted -> WANT : 0) + other_size)
#define free_bytes (CAPACITY - held - kept)
#define step if :: skip :: deaths < DEATHS -> goto dead fi

inline grant_command() {
  if
  :: record == asked && WANT - KEPT <= free_bytes ->
    record = granted;
    asker = NOBODY;
    command_signal = !command_signal
  :: else
  fi
}

inline grant_other() {
  if
  :: other_waits && OTHER_WANT <= free_bytes ->
    other_size = OTHER_WANT;
    other_waits = false;
    other_signal = !other_signal
  :: else
  fi
}

/* By ticket, up to the first that does not fit. Waking is in the same step: that a wake-up after
 * the commit is not lost is waiting.pml's. */
inline serve() {
  if
  :: other_waits && (record != asked || other_ticket < ticket) ->
    grant_other();
    if :: !other_waits -> grant_command() :: else fi
  :: else ->
    grant_command();
    if :: record != asked -> grant_other() :: else fi
  fi;
  assert(held + kept <= CAPACITY)
}

inline forget_dead() {
  if
  :: record == asked && !alive[asker] -> record = deferred; asker = NOBODY
  :: else
  fi;
  if
  :: members_left == 0 && record != gone -> record = gone; asker = NOBODY
  :: else
  fi;
  serve()
}

proctype member(byte me) {
  byte waited; /* the ticket of the request that it waits for */
  bool seen;
look:
  step;
  atomic {
    forget_dead();
    assert(record != gone);
    if
    :: record == granted -> goto uses
    :: record == deferred ->
      /* Who waited for one that died has its place. */
      record = asked;
      asker = me;
      if
      :: ticket != 0 && ticket == waited
      :: else -> ticket = next_ticket; next_ticket++
      fi;
      serve();
      if :: record == granted -> goto uses :: else fi
    :: else
    fi;
    waited = ticket;
    seen = command_signal
  }
  step;
  if
  :: command_signal != seen
  :: timeout && deaths > 0
  fi;
  goto look;
uses:
  assert(record == granted);
  step;
  /* The last one's end is the command's. */
  atomic {
    alive[me] = false;
    members_left--;
    if :: members_left == 0 -> forget_dead() :: else fi
  }
  goto done;
dead:
  atomic { deaths++; alive[me] = false; members_left-- }
done:
  skip
}

proctype other() {
  bool seen;
  atomic {
    other_waits = true;
    other_ticket = next_ticket;
    next_ticket++;
    serve()
  }
look:
  atomic { seen = other_signal; if :: !other_waits -> goto holds :: else fi }
  if
  :: other_signal != seen
  :: timeout && deaths > 0 -> atomic { forget_dead() }
  fi;
  goto look;
holds:
  atomic { other_size = 0; serve() }
}

init {
  atomic {
    byte n = 0;
    do :: n < MEMBERS -> alive[n] = true; run member(n); n++ :: else -> break od;
    run other()
  }
}
