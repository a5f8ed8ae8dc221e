//===- EmulatorMutantTest.cpp - Faulty kernels are caught ------------------===//
//
// Each mutant is a correct kernel with one fault. It must be caught, by a
// finding or by wrong values, within 20 seeds; where a finding is expected, its
// kind and location are checked.
//
//===----------------------------------------------------------------------===//
#include "EmulatorFixture.h"
#include <optional>

using namespace cfc::emu;
using namespace emutest;

namespace {
using Run = Outcome (*)(const Program &, const Options &);

/// Findings of the seeds that caught the mutant; fails if none did.
std::vector<Report> catchMutant(const std::string &module, Run run) {
  auto program = compile(module);
  std::vector<Report> caught;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Options options;
    options.seed = seed;
    Outcome outcome = run(*program, options);
    if (!outcome.good())
      caught.push_back(std::move(outcome.report));
  }
  INFO("no seed of 20 caught it");
  CHECK(!caught.empty());
  return caught;
}

/// True if a seed reported `kind` at an op of that name and a line of the file.
bool reported(const std::vector<Report> &reports, FindingKind kind, const std::string &op) {
  for (const Report &report : reports)
    for (const Finding &finding : report.findings)
      if (finding.kind == kind && finding.location.find("test.mlir:") == 0 &&
          finding.location.find(op) != std::string::npos)
        return true;
  for (const Report &report : reports)
    UNSCOPED_INFO(text(report));
  return false;
}

std::string ring(const std::string &from, const std::string &to) {
  return mutate(readModule("ring"), from, to);
}
} // namespace

TEST_CASE("Mutant: a dropped cluster-scope release") {
  std::string module = mutate(readModule("push"), "mbarrier_arrive cluster", "mbarrier_arrive cta");
  catchMutant(module, runPush);
}

TEST_CASE("Mutant: a dropped cluster-scope acquire") {
  std::string module = mutate(readModule("push"), "mbarrier_wait cluster", "mbarrier_wait cta");
  catchMutant(module, runPush);
}

TEST_CASE("Mutant: stores that no barrier orders before the release") {
  catchMutant(mutate(readModule("push"), "simt.barrier 0, 64", ""), runPush);
}

static std::string storeAsync(const std::string &from, const std::string &to) {
  return mutate(readModule("store_async"), from, to);
}

TEST_CASE("clusters: a destination that does not arm its own expect_tx") {
  auto reports =
      catchMutant(storeAsync("simt.mbarrier_arrive_expect_tx %barrier, %c1024", ""), runStoreAsync);
  CHECK(reported(reports, FindingKind::Deadlock, "simt.mbarrier_wait"));
}

TEST_CASE("Mutant: fewer bytes of async stores expected than arrive") {
  catchMutant(storeAsync("simt.mbarrier_arrive_expect_tx %barrier, %c1024",
                         "simt.mbarrier_arrive_expect_tx %barrier, %c256"),
              runStoreAsync);
}

TEST_CASE("Mutant: async stores read before the wait") {
  auto reports = catchMutant(storeAsync("simt.mbarrier_wait cluster %barrier, %use", ""), runStoreAsync);
  CHECK(reported(reports, FindingKind::Race, "simt.load"));
}

TEST_CASE("Mutant: a wait of cta scope for async stores") {
  auto reports = catchMutant(storeAsync("mbarrier_wait cluster", "mbarrier_wait cta"), runStoreAsync);
  CHECK(reported(reports, FindingKind::Usage, "simt.mbarrier_wait"));
}

TEST_CASE("Mutant: async stores of two rounds on one barrier") {
  std::string module =
      storeAsync("%barrierAt = arith.muli %parity, %c8 : i32", "%barrierAt = arith.muli %c0, %parity : i32");
  catchMutant(mutate(module, "%use = arith.shrui %round, %c1 : i32", "%use = arith.andi %round, %c1 : i32"),
              runStoreAsync);
}

TEST_CASE("Mutant: an async store that counts at the barrier of another CTA") {
  auto reports =
      catchMutant(storeAsync("%bar = simt.map_rank %barrier, %peer", "%bar = simt.map_rank %barrier, %rank"),
                  runStoreAsync);
  CHECK(reported(reports, FindingKind::Usage, "simt.store_async"));
}

TEST_CASE("Mutant: a CTA that leaves while async stores come") {
  std::string module =
      storeAsync("scf.for %round = %c0 to %c3 step %c1", "scf.for %round = %c0 to %c1 step %c1");
  catchMutant(mutate(module, "simt.mbarrier_wait cluster %barrier, %use", ""), runStoreAsync);
}

TEST_CASE("Mutant: a dropped proxy fence") {
  std::string push = mutate(readModule("bulk_push"), "simt.fence_proxy_async // before the push", "");
  CHECK(reported(catchMutant(push, runBulkPush), FindingKind::ProxyOrder, "simt.bulk_push"));
  std::string store = mutate(readModule("bulk_push"), "simt.fence_proxy_async // before the store", "");
  CHECK(reported(catchMutant(store, runBulkPush), FindingKind::ProxyOrder, "simt.bulk_store"));
}

// A copy is ordered behind another thread's reads of its destination only if that thread has fenced them.
TEST_CASE("Mutant: a ring slot freed without a proxy fence") {
  auto reports = catchMutant(ring("simt.fence_proxy_async // before the release", ""), runRing);
  CHECK(reported(reports, FindingKind::ProxyOrder, "simt.bulk_load"));
  CHECK(text(reports.front()).find(": simt.load)") != std::string::npos);

  std::string late = ring("simt.fence_proxy_async // before the release", "");
  late = mutate(late, "simt.mbarrier_arrive cta %empty : !simt.ptr<shared>",
                "simt.mbarrier_arrive cta %empty : !simt.ptr<shared>\n      simt.fence_proxy_async");
  CHECK(reported(catchMutant(late, runRing), FindingKind::ProxyOrder, "simt.bulk_load"));
}

TEST_CASE("Mutant: a ring slot freed with the proxy fence of one lane") {
  auto reports = catchMutant(ring("simt.fence_proxy_async // before the release",
                                  "scf.if %first {\n        simt.fence_proxy_async\n      }"),
                             runRing);
  CHECK(reported(reports, FindingKind::ProxyOrder, "simt.bulk_load"));
}

TEST_CASE("Mutant: a ring slot read by ldmatrix behind the proxy fence") {
  auto reports = catchMutant(ring("simt.fence_proxy_async // before the release",
                                  "simt.fence_proxy_async\n      %m = simt.ldmatrix %mine : i32"),
                             runRing);
  CHECK(reported(reports, FindingKind::ProxyOrder, "simt.bulk_load"));
  CHECK(text(reports.front()).find(": simt.ldmatrix)") != std::string::npos);
}

TEST_CASE("Mutant: a push over bytes that a peer has read without a proxy fence") {
  std::string fenced = mutate(readModule("bulk_push"), "  simt.fence_proxy_async // before the push\n", R"(
  simt.fence_proxy_async
  %other = arith.xori %rank, %c1 : i32
  %place = simt.offset %receiveBuffer, %threadAt : !simt.ptr<shared>, i32
  %remote = simt.map_rank %place, %other
  %seen = simt.load %remote : !simt.ptr<cluster> -> f32
  simt.fence_proxy_async // behind the read
)");
  auto program = compile(fenced);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Options options;
    options.seed = seed;
    Outcome outcome = runBulkPush(*program, options);
    INFO(text(outcome.report));
    CHECK(outcome.good());
  }
  auto reports = catchMutant(mutate(fenced, "simt.fence_proxy_async // behind the read", ""), runBulkPush);
  CHECK(reported(reports, FindingKind::ProxyOrder, "simt.bulk_push"));
}

TEST_CASE("clusters: a parity that does not follow the uses of its barrier") {
  auto reports =
      catchMutant(ring("mbarrier_wait cta %full, %parity", "mbarrier_wait cta %full, %c1"), runRing);
  CHECK(reported(reports, FindingKind::Race, "simt.load"));
  catchMutant(ring("mbarrier_wait cta %full, %parity", "mbarrier_wait cta %full, %c0"), runRing);
}

TEST_CASE("Mutant: expect_tx short by one copy") {
  catchMutant(ring("mbarrier_arrive_expect_tx %full, %c512", "mbarrier_arrive_expect_tx %full, %c256"),
              runRing);
}

TEST_CASE("Mutant: expect_tx long by one copy deadlocks") {
  auto reports = catchMutant(
      ring("mbarrier_arrive_expect_tx %full, %c512", "mbarrier_arrive_expect_tx %full, %c1024"), runRing);
  CHECK(reported(reports, FindingKind::Deadlock, "simt.mbarrier_wait"));
  CHECK(text(reports.front()).find("512 bytes still expected") != std::string::npos);
}

TEST_CASE("Mutant: a ring slot reused early") {
  catchMutant(ring("simt.mbarrier_wait cta %empty, %before", ""), runRing);
}

TEST_CASE("Mutant: a consumer that frees its slot before it has read it") {
  std::string module = readModule("ring");
  module = mutate(module, "      simt.mbarrier_arrive cta %empty : !simt.ptr<shared>\n", "");
  module = mutate(
      module, "simt.mbarrier_wait cta %full, %parity",
      "simt.mbarrier_wait cta %full, %parity\n      simt.mbarrier_arrive cta %empty : !simt.ptr<shared>");
  // Between the two only the slot's address is computed: few orders show it.
  CHECK(reported(catchMutant(module, runRing), FindingKind::Race, "simt.load"));
}

TEST_CASE("clusters: a CTA that exits while a peer may still use its shared memory") {
  for (const char *name : {"pull", "bulk_push"}) {
    std::string module = mutate(readModule(name), "simt.cluster_arrive // before the exit", "");
    module = mutate(module, "simt.cluster_wait   // before the exit", "");
    auto reports = catchMutant(module, name == std::string("pull") ? runPull : runBulkPush);
    bool found = name == std::string("pull") ? reported(reports, FindingKind::EarlyExit, "simt.load")
                                             : !reports.empty();
    CHECK(found);
  }
}

TEST_CASE("Mutant: a missing wait before a remote read") {
  std::string module = mutate(readModule("pull"), "simt.cluster_arrive // before the read", "");
  catchMutant(mutate(module, "simt.cluster_wait   // before the read", ""), runPull);
}

TEST_CASE("Mutant: a tile loop one short") {
  catchMutant(
      ring("%tiles = arith.trunci %tiles64 : i64 to i32",
           "%allTiles = arith.trunci %tiles64 : i64 to i32\n  %tiles = arith.subi %allTiles, %c1 : i32"),
      runRing);
}

TEST_CASE("Mutant: a store past a tensor's end") {
  auto reports = catchMutant(ring("%place = simt.offset %output, %laneAt : !simt.ptr<global>, i32",
                                  "%place0 = simt.offset %output, %laneAt : !simt.ptr<global>, i32\n"
                                  "    %place = simt.offset %place0, %c16 : !simt.ptr<global>, i32"),
                             runRing);
  CHECK(reported(reports, FindingKind::OutOfBounds, "simt.store"));
  CHECK(text(reports.front()).find("past the end of 'output' (512 bytes)") != std::string::npos);
}

TEST_CASE("Mutant: a misaligned bulk copy") {
  auto reports = catchMutant(ring("%source = simt.offset %input, %sourceAt : !simt.ptr<global>, i32",
                                  "%source0 = simt.offset %input, %sourceAt : !simt.ptr<global>, i32\n"
                                  "      %source = simt.offset %source0, %c8 : !simt.ptr<global>, i32"),
                             runRing);
  CHECK(reported(reports, FindingKind::Misaligned, "simt.bulk_load"));
}

TEST_CASE("Mutant: a barrier used before its initialisation is ordered") {
  auto reports = catchMutant(ring("simt.barrier 0, 64", ""), runRing);
  CHECK(reported(reports, FindingKind::BadBarrier, "simt.mbarrier"));
}

TEST_CASE("Mutant: a dropped fence_mbarrier_init") {
  auto reports = catchMutant(ring("simt.fence_mbarrier_init", ""), runRing);
  CHECK(reported(reports, FindingKind::BadBarrier, "simt.bulk_load"));
}

TEST_CASE("Mutant: more arrivals than a barrier counts") {
  catchMutant(ring("simt.mbarrier_init %empty, %c32", "simt.mbarrier_init %empty, %c16"), runRing);
}

TEST_CASE("Mutant: a relaxed arrival at the grid's counter") {
  std::string module = readModule("last_arriver");
  catchMutant(mutate(module, "add acq_rel gpu", "add relaxed gpu"), runLastArriver);
  catchMutant(mutate(module, "add acq_rel gpu", "add acquire gpu"), runLastArriver);
  catchMutant(mutate(module, "add acq_rel gpu", "add acq_rel cta"), runLastArriver);
}

TEST_CASE("Mutant: an arrival that no barrier orders after the stores") {
  catchMutant(mutate(readModule("last_arriver"), "simt.barrier 0, 64 // before the arrival", ""),
              runLastArriver);
}

TEST_CASE("Mutant: a grid barrier that not all wait at, or that orders too little") {
  std::string module = readModule("grid_barrier");
  catchMutant(mutate(module, "simt.barrier 0, 64 // before the grid's", ""), runGridBarrier);
  catchMutant(mutate(module, "simt.barrier 0, 64 // behind the grid's", ""), runGridBarrier);
  catchMutant(
      mutate(module, "scf.if %first {", "%even = arith.cmpi eq, %rank, %c2 : i32\n    scf.if %even {"),
      runGridBarrier);
  auto reports = catchMutant(mutate(module, "grid_barrier %counter, %ctas", "grid_barrier %counter, %c4"),
                             runGridBarrier);
  CHECK(text(reports.front()).find("a grid barrier for 4 CTAs in a grid of 10") != std::string::npos);
  // Who comes again may count before the last has gone.
  reports = catchMutant(mutate(module, "muli %round, %c4 :", "muli %round, %c0 :"), runGridBarrier);
  CHECK(reported(reports, FindingKind::Usage, "simt.grid_barrier"));
  reports = catchMutant(mutate(module, "scf.if %first {",
                               "%some = arith.cmpi slt, %cta, %c4 : i32\n"
                               "    %comes = arith.andi %first, %some : i1\n    scf.if %comes {"),
                        runGridBarrier);
  CHECK(reported(reports, FindingKind::Deadlock, "simt.grid_barrier"));
  CHECK(text(reports.front()).find("reached by 4 of 10 CTAs") != std::string::npos);
}

TEST_CASE("A cooperative launch of which not all clusters run at a time never ends") {
  auto program = compile(readModule("grid_barrier"));
  Options options;
  options.residentClusters = 3;
  Report report = runGridBarrier(*program, options).report;
  REQUIRE(!report.ok);
  CHECK(report.findings.front().kind == FindingKind::Deadlock);
}

TEST_CASE("A counter that a grid barrier does not find at zero") {
  std::string module =
      mutate(readModule("grid_barrier"), "  %total = scf.for",
             "  %seven = arith.constant 7 : i32\n  scf.if %first {\n    %o = simt.atomic max "
             "relaxed gpu %workspace, %seven : !simt.ptr<global>, i32\n  }\n  %total = scf.for");
  auto reports = catchMutant(module, runGridBarrier);
  CHECK(text(reports.front()).find("the counter of the grid barrier is") != std::string::npos);
}

TEST_CASE("Mutant: a collective without all lanes") {
  std::string module =
      mutate(readModule("tiles"), "    simt.store %bPart, %bTo : vector<8xf16>, !simt.ptr<shared>",
             "    simt.store %bPart, %bTo : vector<8xf16>, !simt.ptr<shared>\n    simt.syncwarp");
  auto run = [](const Program &program, const Options &options) {
    Buffers b;
    for (const char *name : {"a", "b", "d", "t"})
      b.tensor<uint32_t>(128, name, /*zeroed=*/true);
    return Outcome{program.launch("tiles", 1, b.table, b.table, b.memory, options)};
  };
  CHECK(reported(catchMutant(module, run), FindingKind::Divergence, "simt."));
}

TEST_CASE("Mutant: a fence missing around a relaxed atomic") {
  std::string fenced = mutate(readModule("last_arriver"), "%old = simt.atomic add acq_rel gpu",
                              "simt.fence gpu // release\n    %old = simt.atomic add relaxed gpu");
  fenced = mutate(fenced, "    simt.store %old, %shared",
                  "    simt.fence gpu // acquire\n    simt.store %old, %shared");
  auto program = compile(fenced);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Options options;
    options.seed = seed;
    CHECK(runLastArriver(*program, options).good());
  }
  catchMutant(mutate(fenced, "simt.fence gpu // release", ""), runLastArriver);
  catchMutant(mutate(fenced, "simt.fence gpu // acquire", ""), runLastArriver);
  catchMutant(mutate(fenced, "simt.fence gpu // release", "simt.fence cta"), runLastArriver);
}

TEST_CASE("Mutant: a bulk store that nobody waits for") {
  auto reports = catchMutant(mutate(readModule("bulk_push"), "simt.bulk_wait 0", ""), runBulkPush);
  CHECK(text(reports.front()).find("unfinished at exit") != std::string::npos);
}

TEST_CASE("Mutant: a copy into bytes that another copy is writing") {
  auto reports = catchMutant(
      ring("simt.bulk_load %target2, %source2, %c256", "simt.bulk_load %target, %source2, %c256"), runRing);
  CHECK(reported(reports, FindingKind::Race, "simt.bulk_load"));
}

TEST_CASE("Mutant: a rank outside of the cluster") {
  auto reports =
      catchMutant(mutate(readModule("pull"), "map_rank %mine, %peer", "map_rank %mine, %c4"), runPull);
  CHECK(reported(reports, FindingKind::Usage, "simt.map_rank"));
}

TEST_CASE("Mutant: a barrier that waits for too many threads") {
  auto reports = catchMutant(mutate(readModule("last_arriver"), "    simt.store %old, %shared : i32",
                                    "    simt.barrier 1, 64\n    simt.store %old, %shared : i32"),
                             runLastArriver);
  CHECK(reported(reports, FindingKind::Deadlock, "simt.barrier"));
  CHECK(text(reports.front()).find("reached by 1 of 64 threads") != std::string::npos);
}

TEST_CASE("Mutant: a write before grid_wait") {
  std::string module = mutate(readModule("last_arriver"), "  simt.return", "  simt.grid_wait\n  simt.return");
  CHECK(reported(catchMutant(module, runLastArriver), FindingKind::Usage, "simt.store"));
}

TEST_CASE("Mutant: an mbarrier that a store overwrites") {
  auto reports =
      catchMutant(ring("%produces = arith.cmpi", "simt.store %c0, %shared : i32, !simt.ptr<shared>\n"
                                                 "  %produces = arith.cmpi"),
                  runRing);
  CHECK(reported(reports, FindingKind::BadBarrier, "simt.mbarrier"));
  CHECK(text(reports.front()).find("was overwritten") != std::string::npos);
}

TEST_CASE("Mutant: a thread that polls for ever") {
  std::string module = mutate(readModule("last_arriver"), "  scf.if %last {", R"(  scf.while : () -> () {
    %now = simt.atomic add relaxed gpu %workspace, %c0 : !simt.ptr<global>, i32
    %again = arith.cmpi ne, %now, %c100 : i32
    scf.condition(%again)
  } do {
    scf.yield
  }
  scf.if %last {)");
  auto program = compile(module);
  Options options;
  options.maxSwitches = 200000;
  Report report = runLastArriver(*program, options).report;
  REQUIRE(!report.ok);
  CHECK(report.findings.front().kind == FindingKind::Hang);
}

TEST_CASE("Mutant: a thread that turns for ever when all others have ended") {
  for (const char *step : {"", "%seen = simt.load %workspace : !simt.ptr<global> -> i32"}) {
    std::string module = mutate(readModule("last_arriver"), "  simt.return\n", std::string(R"(
  %true = arith.constant true
  %only = arith.andi %last, %first : i1
  scf.if %only {
    scf.while : () -> () {
      )") + step + R"(
      scf.condition(%true)
    } do {
      scf.yield
    }
  }
  simt.return
)");
    auto program = compile(module);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Options options;
      options.maxSwitches = 200000;
      options.seed = seed;
      options.chaos = seed != 0;
      Report report = runLastArriver(*program, options).report;
      REQUIRE(!report.ok);
      CHECK(report.findings.front().kind == FindingKind::Hang);
      CHECK(!report.findings.front().location.empty());
    }
  }
}
