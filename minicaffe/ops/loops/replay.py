"""The crew's side of the compiled loops: who walks a table of rows, and how they wait. Needs Numba.

A row is (entry, address of its words, n, slices, whether to meet after it). Thread t of w takes the slices t,
t + w, ... of each row; then it waits for the others. What they share lies in lines of memory, one word of it
looked at by one who waits, so that nobody's looking slows another's work:

    line 0       CLAIM: whose the crew is now, 0 for nobody's
    line 1       what does not change, and MEETING: how often they met
    line 2 + 2t  what is asked of thread t: ASKED counts up, then TABLE (0: a call of Python's) ...
    line 3 + 2t  how far thread t is: the number of the meeting that it has come to

Waiting is looking, then giving way to other threads, then sleep. Between tables a thread sleeps at its lock:
it says so in ASLEEP, and who has counted up ASKED and takes ASLEEP back opens the lock, once each time; so no
call is lost. At a meeting it naps, and looks again.
"""

from __future__ import annotations

from minicaffe.ops.loops import compiled, helper
from minicaffe.ops.loops.spin import function, load, pause, store, swap, swap_if

LINE, WORD = 128, 8  # bytes
CLAIM = 0
MEETING, LOOKS, YIELD, ACQUIRE, NAP, RELEASE = (LINE + WORD * i for i in range(6))
ASKED, TABLE, LENGTH, WALKERS, FROM, ASLEEP, LOCK, SEEN = (WORD * i for i in range(8))
ROW = 5  # words
YIELDS = 2000  # times to give way before sleep, some ms
LONGEST = 500  # us of a nap
WALKING = 1  # the claim of who walks a table; others claim with the number of their thread
call = function(0, (64, 64, 64, 64))
give_way = function(32, ())
acquire = function(32, (64, 32))
acquire_timed = function(32, (64, 64, 32))
release_lock = function(0, (64,))


@helper
def box(crew: int, t: int) -> int:
    """The address of what is asked of thread t; its progress is a line on."""
    return crew + LINE * (2 + 2 * t)


@helper
def looked(crew: int, where: int, wanted: int) -> bool:
    """Wait awake, for some ms, until the word at an address is `wanted` or more; whether it was seen."""
    for _ in range(load(crew + LOOKS)):
        if load(where) >= wanted:
            return True
        pause()
    for _ in range(YIELDS):
        if load(where) >= wanted:
            return True
        give_way(load(crew + YIELD), ())
    return load(where) >= wanted


@helper
def walk(crew: int, table: int, length: int, t: int, walkers: int, meeting: int) -> None:
    """Thread t's part of all rows of a table."""
    lock, flag, nap = load(box(crew, t) + LOCK), box(crew, t) + LINE, 0
    for i in range(length):
        row = table + WORD * ROW * i
        n, slices = load(row + 2 * WORD), load(row + 3 * WORD)
        for s in range(t, slices, walkers):
            first, last = n * s // slices, n * (s + 1) // slices
            call(load(row), (load(row + WORD), first, last, s))
        if walkers > 1 and load(row + 4 * WORD):
            store(flag, meeting + i + 1)
            for other in range(walkers):
                there = box(crew, other) + LINE
                if not looked(crew, there, meeting + i + 1):
                    nap = 20
                    while load(there) < meeting + i + 1:
                        acquire_timed(load(crew + NAP), (lock, nap, 0))
                        nap = min(2 * nap, LONGEST)


@helper
def ask(crew: int, t: int, table: int, length: int, walkers: int, meeting: int) -> None:
    """Have thread t walk a table, or, if there is none, come back to Python."""
    where = box(crew, t)
    store(where + TABLE, table)
    store(where + LENGTH, length)
    store(where + WALKERS, walkers)
    store(where + FROM, meeting)
    store(where + ASKED, load(where + ASKED) + 1)
    if swap(where + ASLEEP, 0):
        release_lock(load(crew + RELEASE), (load(where + LOCK),))


@compiled
def lead(crew: int, table: int, length: int, walkers: int) -> None:
    """Walk a table, with the crew if it is nobody's, else alone."""
    if walkers > 1 and swap_if(crew + CLAIM, 0, WALKING):
        meeting = load(crew + MEETING)
        for t in range(1, walkers):
            ask(crew, t, table, length, walkers, meeting)
        walk(crew, table, length, 0, walkers, meeting)
        store(crew + MEETING, meeting + length)
        store(crew + CLAIM, 0)
    else:
        walk(crew, table, length, 0, 1, 0)


@compiled
def serve(crew: int, t: int) -> None:
    """Thread t's life: walk what it is asked to, until it is asked to come back to Python."""
    where, lock = box(crew, t), load(box(crew, t) + LOCK)
    while True:
        number = load(where + SEEN) + 1
        while not looked(crew, where + ASKED, number):
            swap(where + ASLEEP, 1)
            if load(where + ASKED) < number or not swap(where + ASLEEP, 0):
                acquire(load(crew + ACQUIRE), (lock, 1))
        store(where + SEEN, number)
        table, length = load(where + TABLE), load(where + LENGTH)
        if not table:
            return
        walk(crew, table, length, t, load(where + WALKERS), load(where + FROM))


@compiled
def claim(crew: int, who: int) -> bool:
    """Take the crew for calls of Python's, if it is nobody's; whether it was."""
    return swap_if(crew + CLAIM, 0, who)


@compiled
def free(crew: int, who: int) -> None:
    """Let the crew go, if one has it."""
    swap_if(crew + CLAIM, who, 0)


@compiled
def summon(crew: int, t: int) -> None:
    """Ask thread t to come back to Python."""
    ask(crew, t, 0, 0, 0, 0)
