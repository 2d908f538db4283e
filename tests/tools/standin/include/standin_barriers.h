// The threads of a block where they meet at barriers: each on a stack of its own, one at a time.
#pragma once
#include <link.h>
#include <setjmp.h>
#include <string.h>
#include <ucontext.h>

namespace standin {

struct Fiber {
  char* stack = nullptr;
  jmp_buf place;
  int line;  // of the barrier it waits at; 0 once it has ended, LANES where its warp meets
};
static Fiber fibers[1024];
static unsigned turns[1024];  // how often each has met its warp
constexpr int LANES = -1;
static Fiber* current;
static jmp_buf scheduler;
static thread_local char in_shared;

inline void leave(int line) {
  current->line = line;
  if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}

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

// Fills the block's shared memory with NaN: it is all that this library has of its own per thread.
inline void poison_shared() {
  static char *known, *memory;
  static size_t many;
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
  memset(memory, 0xff, many);
}

// The lanes of a warp to the block's next barrier, through all at which they meet each other only.
inline bool run_warp(unsigned first, unsigned count, int order) {
  unsigned lanes[32];
  do {
    arrange(lanes, count, order);
    for (unsigned step = 0; step < count; ++step) {
      set_thread(first + lanes[step]);
      enter(fibers[first + lanes[step]]);
    }
    for (unsigned lane = 1; lane < count; ++lane)
      if ((fibers[first + lane].line == LANES) != (fibers[first].line == LANES)) return false;
  } while (fibers[first].line == LANES);
  return true;
}

// All threads of a block to the next barrier, again and again, until all have ended; a warp before the next
// begins, so that a warp that need not wait for another does not.
inline void run_block(unsigned threads, int order) {
  const unsigned count = (threads + 31) / 32;
  poison_shared();
  do {
    unsigned warps[32];
    arrange(warps, count, order);
    for (unsigned step = 0; step < count; ++step) {
      const unsigned first = 32 * warps[step];
      if (run_warp(first, threads - first < 32 ? threads - first : 32, order)) continue;
      snprintf(error, sizeof error, "a barrier that not all lanes of a warp reach: thread %u's", first);
      forget_fibers();
      return;
    }
    for (unsigned t = 1; t < threads; ++t) {
      if (fibers[t].line == fibers[0].line) continue;
      int end = snprintf(error, sizeof error, "a barrier that not all threads reach:");
      for (unsigned one : {0u, t}) {
        const char* text = fibers[one].line ? "waits in line %d" : "has ended";
        end += sprintf(error + end, "%s thread %u ", one ? "," : "", one);
        end += sprintf(error + end, text, fibers[one].line);
      }
      forget_fibers();
      return;
    }
  } while (fibers[0].line);
}

}  // namespace standin
