//===- Context.h - Switching between stacks --------------------------------===//
//
// A context is a suspended flow of control on a stack of its own. Switching
// keeps the registers that a callee keeps. The floating-point control words stay
// as they are: no kernel changes them, and saving them costs more than the rest.
//
//===----------------------------------------------------------------------===//
#pragma once
#include <cstddef>

namespace cfc::emu {

using Context = void *;

/// A context that begins with `contextMain` on the stack of `bytes` bytes that ends at `top`.
Context makeContext(void *top, size_t bytes);

/// What every new context does, with the argument of the first switch to it (Scheduler.cpp).
[[noreturn]] void contextMain(void *argument);

/// Leaves the running context in `from` and continues `to`, which has not run since it was left there.
void switchContext(Context &from, Context to, void *argument);

} // namespace cfc::emu
