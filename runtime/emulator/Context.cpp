//===- Context.cpp - Switching between stacks ------------------------------===//
//
// On x86-64 by hand: a `ret` to the other context keeps the processor's
// prediction of returns in step, where Boost's indirect jump spoils the returns
// that follow it. Boost.Context elsewhere.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/Context.h"
#include <cstdint>

using namespace cfc::emu;

#if defined(__x86_64__) && defined(__ELF__)
#include <new>

extern "C" void cfc_emu_switch_context(Context *from, Context to, void *argument);

// `from` is in rdi, `to` in rsi, `argument` in rdx; a new context takes it in rdi.
asm(R"(
    .text
    .p2align 5
    .hidden cfc_emu_switch_context
    .globl cfc_emu_switch_context
    .type cfc_emu_switch_context, @function
cfc_emu_switch_context:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    movq %rdx, %rdi
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cfc_emu_switch_context, .-cfc_emu_switch_context
)");

Context cfc::emu::makeContext(void *top, size_t) {
  /// What the first switch takes from the stack, and a return address of 0 above it.
  struct Frame {
    uint64_t registers[6] = {};
    void (*main)(void *) = contextMain;
    uint64_t end = 0;
  };
  static_assert(sizeof(Frame) % 16 == 0, "the stack is aligned as after a call");
  auto aligned = reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15);
  return new (reinterpret_cast<void *>(aligned - sizeof(Frame))) Frame;
}

void cfc::emu::switchContext(Context &from, Context to, void *argument) {
  cfc_emu_switch_context(&from, to, argument);
}
#else
#include <boost/context/detail/fcontext.hpp>

namespace context = boost::context::detail;

namespace {
struct Passed {
  Context *from;
  void *argument;
};
} // namespace

static void begin(context::transfer_t transfer) {
  auto *passed = static_cast<Passed *>(transfer.data);
  *passed->from = transfer.fctx;
  contextMain(passed->argument);
}

Context cfc::emu::makeContext(void *top, size_t bytes) { return context::make_fcontext(top, bytes, begin); }

void cfc::emu::switchContext(Context &from, Context to, void *argument) {
  Passed passed = {&from, argument};
  context::transfer_t transfer = context::jump_fcontext(to, &passed);
  *static_cast<Passed *>(transfer.data)->from = transfer.fctx;
}
#endif
