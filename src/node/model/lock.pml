/* The lock and the commit: clients die at any step, and new ones take their slots.
 *
 * Checked: one owner at a time; whoever reads finds the books of the last commit, whole; with
 * DEATHS=0 a sleeper is only ever woken (no time-outs), so a lost wake-up is an invalid end state.
 * segment_lock.cpp and attachment.cpp are what this models; names are theirs. */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif

byte word;               /* slot + 1 of the owner */
byte word_term;          /* and its term */
bool waited;             /* the mark in the word */
bool alive[CLIENTS];     /* the kernel's lock on the slot's byte */
bool sleeping[3];
byte term[CLIENTS];      /* in the slot: another one for each client that has it */
byte owners;             /* clients that think they own the lock */
byte deaths;

byte half_sequence[2];
bool half_whole[2];
byte commit_word;

#define gone(w, t) (term[w - 1] != t || !alive[w - 1])
/* 0 has no term: the code's word is 0 as a whole. */
#define same (word == seen && word_term == seen_term)

/* At every step the client may die here. */
#define step if :: skip :: deaths < DEATHS -> goto dead fi

/* Any one of those who sleep. */
inline wake_one() {
  if
  :: sleeping[0] -> sleeping[0] = false
  :: sleeping[1] -> sleeping[1] = false
  :: sleeping[2] -> sleeping[2] = false
  :: else
  fi
}

proctype client(byte slot) {
  byte seen, seen_term, named, round;
  bool seen_mark, look, owner, mark;
start:
  atomic { alive[slot] = true; owner = false; look = false }
  step;
  term[slot]++;
again:
  step;
  /* try_lock */
  atomic {
    if
    :: word == 0 -> word = slot + 1; word_term = term[slot]; waited = false; owner = true; owners++; goto locked
    :: else
    fi
  }
slow:
  step;
  atomic { seen = word; seen_term = word_term; seen_mark = waited }
  if
  :: seen == 0 ->
    atomic {
      if
      :: word == 0 && !waited -> word = slot + 1; word_term = term[slot]; waited = true; owner = true; owners++; goto locked
      :: else -> goto slow
      fi
    }
  :: seen != 0 && (seen == slot + 1 || (look && gone(seen, seen_term))) -> goto steal
  :: else
  fi;
  step;
  atomic {
    if
    :: same && waited == seen_mark -> waited = true
    :: else -> goto slow
    fi
  }
  step;
  atomic {
    if
    :: same && waited -> sleeping[slot] = true
    :: else -> goto slow
    fi
  }
  if
  :: !sleeping[slot] -> look = false
  :: deaths > 0 -> atomic { sleeping[slot] = false; look = true }  /* the slice is over */
  fi;
  goto slow;
steal:
  step;
  atomic {
    if
    :: same && waited == seen_mark ->
      word = slot + 1; word_term = term[slot]; waited = true; owner = true; owners++; goto locked
    :: else -> goto slow
    fi
  }
locked:
  assert(owners == 1);
  step;
  /* read */
  named = commit_word;
  assert(half_whole[named % 2] && half_sequence[named % 2] == named);
  /* commit */
  half_whole[(named + 1) % 2] = false;
  step;
  half_sequence[(named + 1) % 2] = named + 1;
  step;
  half_whole[(named + 1) % 2] = true;
  step;
  assert(commit_word == named);
  commit_word = named + 1;
  step;
  /* unlock */
  atomic {
    assert(word == slot + 1 && owners == 1);
    mark = waited; word = 0; word_term = 0; waited = false; owner = false; owners--
  }
  step;
  if
  :: mark -> atomic { wake_one() }
  :: else
  fi;
  round++;
  if
  :: round < ROUNDS -> goto again
  :: else
  fi;
  /* leaves in good order */
  alive[slot] = false;
  goto done;
dead:
  atomic {
    deaths++;
    alive[slot] = false;
    sleeping[slot] = false;
    if
    :: owner -> owners--
    :: else
    fi;
    goto start
  }
done:
  skip
}

init {
  byte n;
  atomic {
    half_whole[0] = true;
    n = 0;
    do
    :: n < CLIENTS -> run client(n); n++
    :: else -> break
    od
  }
}
