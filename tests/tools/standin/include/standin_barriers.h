// The threads of a block where they meet at barriers: each on a stack of its own, one at a time. The blocks of a
// cluster take turns, each with its own image of shared memory.
#pragma once
#include <link.h>
#include <string.h>
#include <ucontext.h>

namespace standin {

struct Fiber {
  char* stack = nullptr;
  jmp_buf place;
  int line;  // of the barrier it waits at; 0 once it has ended, LANES where its warp meets, or BLOCKS its cluster
};
constexpr unsigned THREADS = 1024, MOST = 8;  // of a block; blocks of a cluster
static Fiber fibers[MOST * THREADS];
static unsigned turns[THREADS];  // how often each has met its warp
constexpr int LANES = -1, BLOCKS = -2;
static Fiber* current;
static jmp_buf scheduler;
static thread_local char in_shared;

inline void leave(int line) {
  current->line = line;
  if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}

static void give_up() { leave(0); }

inline void barrier(int line) {
  leave(line);
  asm volatile("" ::: "memory");
}

// A fiber outlives its block: to switch by swapcontext, or to make one, are calls of the system.
inline void start() {
  for (;;) {
    body();
    leave(0);
  }
}

inline void enter(Fiber& fiber) {
  const size_t size = 1 << 16;
  static ucontext_t fresh;
  current = &fiber;
  if (_setjmp(scheduler)) return;
  if (fiber.stack) _longjmp(fiber.place, 1);
  fiber.stack = static_cast<char*>(malloc(size));
  getcontext(&fresh);
  fresh.uc_stack.ss_sp = fiber.stack;
  fresh.uc_stack.ss_size = size;
  makecontext(&fresh, start, 0);
  setcontext(&fresh);
}

inline void forget_fibers() {
  for (Fiber& fiber : fibers) {
    free(fiber.stack);
    fiber.stack = nullptr;
  }
  memset(turns, 0, sizeof turns);
}

// A block's shared memory: all that this library has of its own per thread.
static char* memory;
static size_t many;
inline void find_shared() {
  static char* known;
  in_shared = 0;
  const auto find = [](dl_phdr_info* library, size_t, void*) {
    for (int i = 0; i < library->dlpi_phnum; ++i) {
      char* first = static_cast<char*>(library->dlpi_tls_data);
      const size_t size = library->dlpi_phdr[i].p_memsz;
      if (library->dlpi_phdr[i].p_type != PT_TLS || !first) continue;
      if (&in_shared < first || &in_shared >= first + size) continue;
      known = &in_shared;
      memory = first;
      many = size;
      return 1;
    }
    return 0;
  };
  if (known != &in_shared) {  // a thread's first block here: fibers may know where another's memory is
    forget_fibers();
    if (!dl_iterate_phdr(find, nullptr)) abort();
  }
}

// The lanes of a warp to the block's next barrier, through all at which they meet each other only.
inline bool run_warp(Fiber* team, unsigned first, unsigned count, int order) {
  unsigned lanes[32];
  do {
    arrange(lanes, count, order);
    for (unsigned step = 0; step < count; ++step) {
      set_thread(first + lanes[step]);
      enter(team[first + lanes[step]]);
    }
    for (unsigned lane = 1; lane < count; ++lane)
      if ((team[first + lane].line == LANES) != (team[first].line == LANES)) return false;
  } while (team[first].line == LANES);
  return true;
}

// All threads of a block to the next barrier, again and again, until all have ended or wait for the cluster; a warp
// before the next begins, so that a warp that need not wait for another does not.
inline void run_block(Fiber* team, unsigned threads, int order) {
  const unsigned count = (threads + 31) / 32;
  do {
    unsigned warps[32];
    arrange(warps, count, order);
    for (unsigned step = 0; step < count; ++step) {
      const unsigned first = 32 * warps[step];
      const bool met = run_warp(team, first, threads - first < 32 ? threads - first : 32, order);
      if (*error) return;
      if (met) continue;
      snprintf(error, sizeof error, "a barrier that not all lanes of a warp reach: thread %u's", first);
      return;
    }
    for (unsigned t = 1; t < threads; ++t) {
      if (team[t].line == team[0].line) continue;
      int end = snprintf(error, sizeof error, "a barrier that not all threads reach:");
      for (unsigned one : {0u, t}) {
        const int line = team[one].line;
        const char* text = line > 0 ? "waits in line %d" : line ? "waits for its cluster" : "has ended";
        end += sprintf(error + end, "%s thread %u ", one ? "," : "", one);
        end += sprintf(error + end, text, line);
      }
      return;
    }
  } while (team[0].line > 0);
}

// What the blocks of a cluster have in shared memory, and whether any wrote into another's since all met.
static char* images[MOST];
static bool written;
static unsigned meetings;

// The blocks (x, 0 ... blocks - 1) to their ends, and to where they meet before. Shared memory is NaN at first, and
// behind what of it was asked for.
inline void run_cluster(unsigned blocks, unsigned threads, int order) {
  find_shared();
  meetings = written = false;
  if (blocks > MOST) snprintf(error, sizeof error, "a cluster of %u blocks, of %u at the most", blocks, MOST);
  if (*error) return;
  for (unsigned block = 0; block < blocks; ++block) {
    if (blocks > 1) images[block] = static_cast<char*>(realloc(images[block], many));
    memset(blocks > 1 ? images[block] : memory, 0xff, many);
  }
  do {
    unsigned ranks[MOST];
    arrange(ranks, blocks, order);
    for (unsigned step = 0; step < blocks && !*error; ++step) {
      if (blocks > 1) memcpy(memory, images[blockIdx.y = ranks[step]], many);
      run_block(fibers + ranks[step] * threads, threads, order);
      if (blocks > 1) memcpy(images[ranks[step]], memory, many);
    }
    for (unsigned block = 1; block < blocks && !*error; ++block)
      if (fibers[block * threads].line != fibers[0].line)
        snprintf(error, sizeof error, "a meeting that not all blocks of a cluster come to");
    ++meetings;
    if (fibers[0].line == BLOCKS) written = false;
  } while (fibers[0].line == BLOCKS && !*error);
  if (written && !*error) snprintf(error, sizeof error, "a block may have ended before another wrote into its memory");
  if (*error) forget_fibers();
}

}  // namespace standin
