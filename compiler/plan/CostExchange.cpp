//===- CostExchange.cpp - What an exchange over a cluster costs --------------===//
//
// Latencies, what is sent, and what is merged. tools/gpu/fit_exchange.py fits the
// constants by the same formula.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/Cost.h"
#include "llvm/Support/MathExtras.h"

using namespace cfc;

double cfc::exchangeUs(const Machine &machine, const KernelPlan &plan, const Exchanged &what) {
  double workers = plan.part, rounds = llvm::Log2_64(plan.part);
  double latency = machine.peerUs * (workers - 2), sent = workers - 1, merged = workers; // in `bytes`
  switch (what.algorithm) {
  case Exchange::Butterfly:
    latency = machine.pushUs + machine.roundUs * (rounds - 1);
    if (what.merges) // each round sends all to one peer, and merges it
      sent = rounds, merged = 2 * rounds;
    break;
  case Exchange::Bulk:
    latency += machine.bulkUs;
    break;
  case Exchange::Async:
    latency += machine.asyncUs;
    if (!what.merges)
      sent = workers; // its own part too
    if (what.states)
      sent *= 2;
    break;
  case Exchange::Scatter: // a part to each peer, then a merged part to all
    latency += machine.scatterUs;
    sent = (2 * workers - 1) / workers, merged = 1;
    break;
  default:
    latency += machine.pushUs;
  }
  if (what.scatters) // a part to each peer; a butterfly halves
    sent = (workers - 1) / workers, merged = 1;
  double us = latency + machine.loadUs * rounds + sent * what.bytes / machine.peerBandwidth * 1e6;
  return what.merges ? us + merged * what.bytes / machine.mergeBandwidth * 1e6 : us;
}

Exchanged cfc::exchangeOf(const KernelSizes &sizes, const KernelPlan &kernel, const OpSizes &op,
                          const OpChoice &plan) {
  if (kernel.part == 1)
    return {};
  if (op.kind == OpSizes::Attention) {
    // Copies of weights are under way behind it, with which bulk copies of states wait in line: stores take
    // no longer there, though they are twice as many (32768 tokens 52.8 us instead of 53.2, up to 16384 the
    // same).
    bool weightsBehind = llvm::any_of(
        sizes.getOps(), [&](const OpSizes &other) { return &other > &op && other.kind == OpSizes::Linear; });
    return {plan.reduce, double(op.stateBytes()), true, scattersHeads(op.group, kernel, plan),
            !weightsBehind};
  }
  double payload = op.kind == OpSizes::Linear ? sizes.linear(kernel, op, plan.split).payload : 0;
  if (sizes.scatters(op, plan.split))
    return {plan.reduce, payload, true, true};
  if (!op.gathered)
    return {};
  return plan.split == Split::Columns ? Exchanged{plan.reduce, payload, true}
                                      : Exchanged{plan.gather, payload / kernel.part, false};
}

double cfc::exchangeUs(const KernelSizes &sizes, const Machine &machine, const KernelPlan &kernel,
                       const OpSizes &op, const OpChoice &plan) {
  Exchanged what = exchangeOf(sizes, kernel, op, plan);
  return what.algorithm == Exchange::Unset ? 0 : exchangeUs(machine, kernel, what);
}

double cfc::chunksMergedUs(const Machine &machine, const KernelPlan &kernel, const OpSizes &op, int64_t heads,
                           Exchange finish) {
  auto chunks = static_cast<double>(chunksOf(kernel)), state = static_cast<double>(op.stateBytes());
  if (finish == Exchange::Reader) // each of its CTAs reads the states of all heads, and the new token's
    return (chunks + 1) * static_cast<double>(heads) * state / machine.stateBandwidth * 1e6;
  return machine.finishUs + chunks * state / machine.stateBandwidth * 1e6;
}
