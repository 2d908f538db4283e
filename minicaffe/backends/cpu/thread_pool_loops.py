"""The crew's side of the compiled loops: who walks a table of rows, and how they wait. Needs Numba.

A row is (entry, address of its words, n, slices, first thread f, whether to meet after it). Thread f + t of w
takes the slices t, t + w, ... of each row; then it waits for the others. What they share lies in lines of
memory, one word of it looked at by one who waits, so that nobody's looking slows another's work:

    line 0       TAKEN: 1 while the crew walks a table, for one caller at a time
    line 1       what does not change, and MEETING: how often they met
    line 2 + 2t  what is asked of thread t: ASKED counts up; TABLE is there until the thread has taken it
    line 3 + 2t  how far thread t is: the number of the meeting that it has come to

Waiting is looking, then giving way to other threads, then sleep. Between tables a thread sleeps at its lock:
it says so in ASLEEP, and who has counted up ASKED and takes ASLEEP back opens the lock, once each time; so no
call is lost. At a meeting it naps, and looks again. Where ASKED has counted up and there is no table, the
thread goes back to Python, to see what there is to do: its caller does not wait for that, and may ask anew.
"""

from minicaffe.backends.cpu import compiled, helper
from minicaffe.backends.cpu.atomics import add, function, load, pause, store, swap

LINE, WORD = 128, 8  # bytes
TAKEN = 0
MEETING, LOOKS, YIELDS, YIELD, ACQUIRE, NAP, RELEASE = (LINE + WORD * i for i in range(7))
ASKED, TABLE, LENGTH, WALKERS, FROM, ASLEEP, LOCK, SEEN = (WORD * i for i in range(8))
ROW = 6  # words
LONGEST = 500  # us of a nap
call = function(0, (64, 64, 64, 64))
give_way = function(32, ())
acquire = function(32, (64, 32))
acquire_timed = function(32, (64, 64, 32))
release_lock = function(0, (64,))


@helper
def box(crew, t):
    """The address of what is asked of thread t; its progress is a line on."""
    return crew + LINE * (2 + 2 * t)


@helper
def looked(crew, where, wanted):
    """Wait awake, for some ms, until the word at an address is `wanted` or more; whether it was seen."""
    for _ in range(load(crew + LOOKS)):
        if load(where) >= wanted:
            return True
        pause()
    for _ in range(load(crew + YIELDS)):
        if load(where) >= wanted:
            return True
        give_way(load(crew + YIELD), ())
    return load(where) >= wanted


@helper
def walk(crew, table, length, t, walkers, meeting):
    """Thread t's part of all rows of a table."""
    lock, flag, nap = load(box(crew, t) + LOCK), box(crew, t) + LINE, 0
    for i in range(length):
        row = table + WORD * ROW * i
        n, slices = load(row + 2 * WORD), load(row + 3 * WORD)
        for s in range((t - load(row + 4 * WORD)) % walkers, slices, walkers):
            first, last = n * s // slices, n * (s + 1) // slices
            call(load(row), (load(row + WORD), first, last, s))
        if walkers > 1 and load(row + 5 * WORD):
            store(flag, meeting + i + 1)
            for other in range(walkers):
                there = box(crew, other) + LINE
                if not looked(crew, there, meeting + i + 1):
                    nap = 20
                    while load(there) < meeting + i + 1:
                        acquire_timed(load(crew + NAP), (lock, nap, 0))
                        nap = min(2 * nap, LONGEST)


@compiled
def ring(crew, t):
    """Let thread t see what is asked of it."""
    where = box(crew, t)
    add(where + ASKED, 1)
    if swap(where + ASLEEP, 0):
        release_lock(load(crew + RELEASE), (load(where + LOCK),))


@compiled
def lead(crew, table, length, walkers):
    """Walk a table, with the crew if it is nobody's, else alone."""
    if walkers > 1 and not swap(crew + TAKEN, 1):
        meeting = load(crew + MEETING)
        for t in range(1, walkers):
            where = box(crew, t)
            store(where + LENGTH, length)
            store(where + WALKERS, walkers)
            store(where + FROM, meeting)
            store(where + TABLE, table)
            ring(crew, t)
        walk(crew, table, length, 0, walkers, meeting)
        store(crew + MEETING, meeting + length)
        store(crew + TAKEN, 0)
    else:
        walk(crew, table, length, 0, 1, 0)


@compiled
def serve(crew, t):
    """Thread t's life: walk what it is asked to, until it is asked to come back to Python."""
    where, lock = box(crew, t), load(box(crew, t) + LOCK)
    while True:
        number = load(where + SEEN) + 1
        while not looked(crew, where + ASKED, number):
            swap(where + ASLEEP, 1)
            if load(where + ASKED) < number or not swap(where + ASLEEP, 0):
                acquire(load(crew + ACQUIRE), (lock, 1))
        store(where + SEEN, load(where + ASKED))
        table = swap(where + TABLE, 0)
        if not table:
            return
        length, walkers, meeting = load(where + LENGTH), load(where + WALKERS), load(where + FROM)
        walk(crew, table, length, t, walkers, meeting)
