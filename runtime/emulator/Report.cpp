//===- Report.cpp - Findings and counters ----------------------------------===//
//
// Stops a launch at a violation and says where it was; describes a deadlock by
// what each group of threads waits for.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/Runtime.h"
#include "llvm/Support/raw_ostream.h"
#include <fmt/format.h>

using namespace cfc::emu;

llvm::StringRef cfc::emu::name(FindingKind kind) {
  switch (kind) {
  case FindingKind::OutOfBounds:
    return "out of bounds";
  case FindingKind::Misaligned:
    return "misaligned";
  case FindingKind::BadBarrier:
    return "bad barrier";
  case FindingKind::Divergence:
    return "divergence";
  case FindingKind::Deadlock:
    return "deadlock";
  case FindingKind::Hang:
    return "hang";
  case FindingKind::EarlyExit:
    return "early exit";
  case FindingKind::UnfinishedAtExit:
    return "unfinished at exit";
  case FindingKind::ProxyOrder:
    return "proxy order";
  case FindingKind::Race:
    return "race";
  case FindingKind::Usage:
    return "usage";
  case FindingKind::Trap:
    return "trap";
  }
  return "?";
}

llvm::StringRef Counters::name(Counter counter) {
  static constexpr llvm::StringLiteral names[kNumCounters] = {
      "mma",
      "ldmatrix",
      "movmatrix",
      "shuffles",
      "map_rank",
      "barriers",
      "mbarrier_waits",
      "cluster_waits",
      "remote_stores",
      "remote_store_bytes",
      "remote_loads",
      "remote_arrives",
      "remote_atomics",
      "bulk_loads",
      "bulk_load_bytes",
      "bulk_pushes",
      "bulk_push_bytes",
      "bulk_stores",
      "bulk_store_bytes",
      "tensor_loads",
      "tensor_load_bytes",
      "atomics",
      "global_loads",
      "global_load_bytes",
      "global_stores",
      "global_store_bytes",
      "shared_loads",
      "shared_stores",
  };
  return names[static_cast<unsigned>(counter)];
}

void Counters::print(llvm::raw_ostream &os) const {
  for (unsigned i = 0; i < kNumCounters; ++i)
    if (total[i])
      os << fmt::format("{:<20} {:>12} {:>10} in one CTA\n", std::string_view(name(Counter(i))), total[i],
                        maxCta[i]);
}

void Report::print(llvm::raw_ostream &os) const {
  for (const Finding &f : findings) {
    os << (f.location.empty() ? "" : f.location + ": ") << name(f.kind) << ": " << f.message;
    if (f.cluster >= 0)
      os << " (cluster " << f.cluster << ", CTA " << f.cta;
    if (f.thread >= 0)
      os << ", thread " << f.thread;
    os << (f.cluster >= 0 ? ")\n" : "\n");
  }
}

void Launch::add(const Cta *cta, int thread, FindingKind kind, uint32_t location, std::string message) {
  Finding finding{kind, std::move(message), {}, -1, -1, thread};
  if (location < locations.size())
    finding.location = locations.names[location];
  if (cta) {
    finding.cluster = cta->cluster->index;
    finding.cta = cta->rank;
  }
  report.ok = false;
  report.findings.push_back(std::move(finding));
}

namespace {
struct Aborted {};
} // namespace

/// Leaves the fibers where they are and returns to `run`.
static void abort(Launch &launch) {
  launch.aborted = true;
  if (launch.current == &launch.host)
    throw Aborted();
  launch.switchTo(launch.current, &launch.host);
}

void Launch::fail(const Cta *cta, FindingKind kind, uint32_t location, std::string message) {
  add(cta, -1, kind, location, std::move(message));
  abort(*this);
  __builtin_unreachable();
}

void Launch::fail(Fiber *fiber, FindingKind kind, uint32_t location, std::string message) {
  add(fiber->cta, fiber->thread, kind, location, std::move(message));
  abort(*this);
  __builtin_unreachable();
}

void Launch::run() {
  SignalStack signalStack;
  prepareSlots();
  try {
    for (auto &slot : slots)
      startCluster(*slot, nextCluster++);
    while (!aborted) {
      Fiber *next = pickWarp();
      if (next == &host) {
        if (liveClusters)
          reportDeadlock();
        break;
      }
      switchTo(&host, next);
      if (!finished || aborted)
        continue;
      Cluster &slot = *std::exchange(finished, nullptr);
      --liveClusters;
      if (nextCluster < numClusters)
        startCluster(slot, nextCluster++);
    }
    if (report.ok) {
      for (auto &overlay : orphans)
        landAll(*overlay);
    }
  } catch (Aborted) {
  }
  report.switches = switches;
}

//===-- Deadlock ----------------------------------------------------------===//
static std::string describeWait(const Fiber &fiber) {
  const Cta &cta = *fiber.cta;
  switch (fiber.wait) {
  case WaitKind::None:
    return "can run";
  case WaitKind::Collective:
    return fmt::format("at a collective that {} of 32 lanes have reached",
                       llvm::popcount(fiber.warp->arrived));
  case WaitKind::NamedBarrier: {
    const NamedBarrier &b = cta.named[fiber.waitDetail];
    return fmt::format("at barrier {}, reached by {} of {} threads", fiber.waitDetail, b.waiters.size(),
                       b.threads);
  }
  case WaitKind::ClusterBarrier:
    return fmt::format("at the cluster's barrier, reached by {} of {} threads", cta.cluster->arrived,
                       cta.cluster->liveThreads);
  case WaitKind::GridBarrier:
    for (auto &[counter, waiters] : fiber.launch->gridWaiters)
      if (llvm::is_contained(waiters, &fiber))
        return fmt::format("at the grid's barrier, reached by {} of {} CTAs", waiters.size(),
                           fiber.launch->numClusters * fiber.launch->kernel.cluster);
    break;
  case WaitKind::Words:
    return "for words that nobody has written";
  case WaitKind::Mbarrier: {
    const Mbarrier &b = *fiber.waitBarrier;
    return fmt::format(
        "for parity {} of the mbarrier at shared byte {} of CTA {}: it is in phase {} with {} of {} "
        "arrivals and {} bytes {}",
        fiber.waitDetail, b.offset, b.cta->rank, b.phase, b.count - b.pending, b.count,
        b.tx < 0 ? -b.tx : b.tx, b.tx < 0 ? "copied but not expected" : "still expected");
  }
  case WaitKind::BulkGroups:
    return fmt::format("until at most {} bulk groups are unfinished", fiber.waitDetail);
  }
  return "?";
}

static bool sameWait(const Fiber &a, const Fiber &b) {
  return a.wait == b.wait && a.location == b.location && a.waitDetail == b.waitDetail &&
         a.waitBarrier == b.waitBarrier;
}

/// Adds one finding for each run of threads of a CTA that wait for the same thing.
static void describeCta(Launch &launch, const Cta &cta) {
  auto isLive = [&](unsigned t) { return cta.warps[t / 32].live >> (t % 32) & 1; };
  unsigned threads = launch.kernel.threads;
  for (unsigned begin = 0, end; begin < threads; begin = end) {
    end = begin + 1;
    if (!isLive(begin))
      continue;
    const Fiber &first = cta.fibers[begin];
    while (end < threads && isLive(end) && sameWait(first, cta.fibers[end]))
      ++end;
    std::string who = end - begin == 1 ? fmt::format("thread {} waits", begin)
                                       : fmt::format("threads {} to {} wait", begin, end - 1);
    launch.add(&cta, begin, FindingKind::Deadlock, first.location, who + " " + describeWait(first));
  }
}

void Launch::reportDeadlock() {
  constexpr size_t most = 16;
  for (auto &cluster : slots)
    for (auto &cta : cluster->ctas)
      if (!cta->exited && report.findings.size() < most)
        describeCta(*this, *cta);
}
