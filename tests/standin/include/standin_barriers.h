// The threads of a block where they meet at barriers: each on a stack of its own, one at a time.
#pragma once
#include <link.h>
#include <string.h>
#include <ucontext.h>
#include <vector>

namespace standin {

struct Fiber {
  ucontext_t context;
  char* stack = nullptr;
  int line;  // of the barrier it waits at; 0 once it has ended
};
static std::vector<Fiber> fibers;
static Fiber* current;
static ucontext_t scheduler;
static thread_local char in_shared;

inline void barrier(int line) {
  current->line = line;
  swapcontext(&current->context, &scheduler);
  asm volatile("" ::: "memory");
}

inline void start() {
  body();
  current->line = 0;
}

// Fills the block's shared memory with NaN: it is all that this library has of its own per thread.
inline void poison_shared() {
  in_shared = 0;
  const auto fill = [](dl_phdr_info* library, size_t, void*) {
    for (int i = 0; i < library->dlpi_phnum; ++i) {
      char* first = static_cast<char*>(library->dlpi_tls_data);
      const size_t size = library->dlpi_phdr[i].p_memsz;
      if (library->dlpi_phdr[i].p_type != PT_TLS || !first) continue;
      if (&in_shared < first || &in_shared >= first + size) continue;
      memset(first, 0xff, size);
      return 1;
    }
    return 0;
  };
  if (!dl_iterate_phdr(fill, nullptr)) abort();
}

// All threads of a block to the next barrier, again and again, until all have ended.
inline std::string run_block(unsigned threads, bool reversed) {
  const size_t size = 1 << 16;
  poison_shared();
  if (fibers.size() < threads) fibers.resize(threads);
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& fiber = fibers[t];
    if (!fiber.stack) fiber.stack = static_cast<char*>(malloc(size));
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = size;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, start, 0);
  }
  do {
    for (unsigned step = 0; step < threads; ++step) {
      const unsigned t = reversed ? threads - 1 - step : step;
      current = &fibers[t];
      set_thread(t);
      swapcontext(&scheduler, &current->context);
    }
    for (unsigned t = 1; t < threads; ++t) {
      if (fibers[t].line == fibers[0].line) continue;
      const auto place = [](const Fiber& fiber) {
        return fiber.line ? "waits in line " + std::to_string(fiber.line) : "has ended";
      };
      return "a barrier that not all threads reach: thread 0 " + place(fibers[0]) + ", thread " +
             std::to_string(t) + " " + place(fibers[t]);
    }
  } while (fibers[0].line);
  return "";
}

}  // namespace standin
