//===- Stacks.cpp - Stacks for fibers --------------------------------------===//
//
// Stacks are mapped in batches, each with a guard page below it, and are kept
// for later launches.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/Runtime.h"
#include <csignal>
#include <mutex>
#include <new>
#include <sys/mman.h>

using namespace cfc::emu;

static std::mutex poolMutex;
static std::vector<char *> &idleStacks() {
  static std::vector<char *> stacks;
  return stacks;
}

/// A guard page splits a mapping, of which a process has about 65,000: after the first stacks only each batch
/// has one.
static void mapStacks(std::vector<char *> &into, size_t count) {
  constexpr size_t guard = 4096, mostGuarded = 16384;
  static size_t guarded = 0;
  void *base = mmap(nullptr, count * kStackBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    throw std::bad_alloc();
  for (size_t i = 0; i < count; ++i) {
    char *stack = static_cast<char *>(base) + i * kStackBytes;
    if (i == 0 || guarded < mostGuarded) {
      mprotect(stack, guard, PROT_NONE);
      ++guarded;
    }
    into.push_back(stack);
  }
}

std::vector<char *> cfc::emu::takeStacks(size_t count) {
  constexpr size_t batch = 256;
  std::lock_guard<std::mutex> lock(poolMutex);
  std::vector<char *> &idle = idleStacks();
  while (idle.size() < count)
    mapStacks(idle, batch);
  std::vector<char *> taken(idle.end() - count, idle.end());
  idle.resize(idle.size() - count);
  return taken;
}

SignalStack::SignalStack() {
  stack_t present = {};
  if (sigaltstack(nullptr, &present) != 0 || !(present.ss_flags & SS_DISABLE))
    return;
  constexpr size_t bytes = 64 << 10;
  memory = std::make_unique<char[]>(bytes);
  stack_t added = {};
  added.ss_sp = memory.get();
  added.ss_size = bytes;
  sigaltstack(&added, nullptr);
}

SignalStack::~SignalStack() {
  stack_t none = {};
  none.ss_flags = SS_DISABLE;
  if (memory)
    sigaltstack(&none, nullptr);
}

void cfc::emu::returnStacks(const std::vector<char *> &stacks) {
  std::lock_guard<std::mutex> lock(poolMutex);
  std::vector<char *> &idle = idleStacks();
  idle.insert(idle.end(), stacks.begin(), stacks.end());
}
