//===- Warp.cpp - Warp collectives -----------------------------------------===//
//
// Each lane leaves its operands with the warp; the last one to arrive computes
// for all of them.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/EntryPoints.h"
#include "runtime/emulator/Runtime.h"
#include <cstring>
#include <fmt/format.h>

using namespace cfc::emu;

[[noreturn]] static void failDivergence(Fiber *fiber, uint32_t location) {
  Launch &launch = *fiber->launch;
  const Warp &warp = *fiber->warp;
  std::string message =
      warp.live != ~0u
          ? fmt::format("a warp collective after {} lanes have exited", 32 - llvm::popcount(warp.live))
          : fmt::format("lane {} is at this collective, others wait at {}", fiber->lane,
                        warp.location < launch.locations.size() ? launch.locations.names[warp.location]
                                                                : "?");
  launch.fail(fiber, FindingKind::Divergence, location, std::move(message));
}

/// Waits for all 32 lanes; the last runs `execute`. Returns when that has happened.
template <typename Execute> static void rendezvous(Fiber *fiber, uint32_t location, Execute execute) {
  Warp &warp = *fiber->warp;
  if (!warp.arrived)
    warp.location = location;
  if (warp.live != ~0u || warp.location != location)
    failDivergence(fiber, location);
  warp.arrived |= 1u << fiber->lane;
  if (warp.arrived != ~0u) {
    fiber->launch->block(fiber, WaitKind::Collective, location);
    return;
  }
  warp.arrived = 0;
  execute(warp);
  warp.ready = ~0u;
}

void cfc_emu_syncwarp(Fiber *fiber, uint32_t location) {
  Launch &launch = *fiber->launch;
  rendezvous(fiber, location, [&](Warp &warp) {
    Chunks gathered;
    uint64_t mark = ++launch.merges;
    Fiber *lanes[32];
    for (unsigned i = 0; i < 32; ++i) {
      lanes[i] = &warp.fibers[i];
      launch.gather(lanes[i], gathered, mark);
    }
    launch.spread(gathered, lanes);
  });
}

uint32_t cfc_emu_shuffle(Fiber *fiber, uint32_t value, uint32_t lane, uint32_t mode, uint32_t location) {
  Warp::Arguments &mine = fiber->warp->lanes[fiber->lane];
  uint32_t source = mode == 0 ? fiber->lane ^ lane : lane;
  if (source >= 32)
    fiber->launch->fail(fiber, FindingKind::Usage, location,
                        fmt::format("a shuffle from lane {}", static_cast<int32_t>(source)));
  mine.a = value;
  mine.b = source;
  rendezvous(fiber, location, [](Warp &warp) {
    uint32_t values[32];
    for (unsigned i = 0; i < 32; ++i)
      values[i] = warp.lanes[warp.lanes[i].b].a;
    for (unsigned i = 0; i < 32; ++i)
      warp.lanes[i].a = values[i];
    warp.cta->count(Counter::Shuffles);
  });
  return mine.a;
}

//===-- Matrices of 8 x 8 elements of 16 bits -----------------------------===//
static uint32_t pair(uint16_t low, uint16_t high) { return low | uint32_t(high) << 16; }

/// Lane i holds elements 2 (i % 4) and the next of row i / 4; of the transposed matrix if `trans`.
static uint32_t fragment(const char *const rows[8], unsigned lane, bool trans) {
  unsigned row = lane / 4, column = 2 * (lane % 4);
  if (!trans) {
    uint32_t value;
    std::memcpy(&value, rows[row] + 2 * column, 4);
    return value;
  }
  uint16_t low, high;
  std::memcpy(&low, rows[column] + 2 * row, 2);
  std::memcpy(&high, rows[column + 1] + 2 * row, 2);
  return pair(low, high);
}

static void loadMatrices(Warp &warp, unsigned matrices, bool trans, uint32_t location) {
  for (unsigned lane = 0; lane < 8 * matrices; ++lane) {
    const auto *row = static_cast<const char *>(warp.lanes[lane].in);
    checkShared(&warp.fibers[lane], row, 16, 16, location, "row");
    if (looksInFlight(row))
      checkInFlight(&warp.fibers[lane], *warp.cta, row, 16, location, "row");
    noteRead(warp, ReadTag::kAllLanes, row, location);
  }
  for (unsigned m = 0; m < matrices; ++m) {
    const char *rows[8];
    for (unsigned r = 0; r < 8; ++r)
      rows[r] = static_cast<const char *>(warp.lanes[8 * m + r].in);
    for (unsigned lane = 0; lane < 32; ++lane)
      static_cast<uint32_t *>(warp.lanes[lane].out)[m] = fragment(rows, lane, trans);
  }
  warp.cta->count(Counter::Ldmatrix);
}

void cfc_emu_ldmatrix(Fiber *fiber, const char *address, uint32_t matrices, uint32_t trans, uint32_t *out,
                      uint32_t location) {
  Warp::Arguments &mine = fiber->warp->lanes[fiber->lane];
  mine.in = address;
  mine.out = out;
  rendezvous(fiber, location, [&](Warp &warp) { loadMatrices(warp, matrices, trans, location); });
}

uint32_t cfc_emu_movmatrix(Fiber *fiber, uint32_t value, uint32_t location) {
  Warp::Arguments &mine = fiber->warp->lanes[fiber->lane];
  mine.a = value;
  rendezvous(fiber, location, [](Warp &warp) {
    uint32_t matrix[8][4];
    const char *rows[8];
    for (unsigned lane = 0; lane < 32; ++lane)
      matrix[lane / 4][lane % 4] = warp.lanes[lane].a;
    for (unsigned r = 0; r < 8; ++r)
      rows[r] = reinterpret_cast<const char *>(matrix[r]);
    for (unsigned lane = 0; lane < 32; ++lane)
      warp.lanes[lane].a = fragment(rows, lane, /*trans=*/true);
    warp.cta->count(Counter::Movmatrix);
  });
  return mine.a;
}

//===-- mma ---------------------------------------------------------------===//
static void multiply(Warp &warp, bool bf16) {
  alignas(32) uint16_t a[16][16], b[16][8];
  alignas(32) float c[16][8];
  for (unsigned lane = 0; lane < 32; ++lane) {
    const auto *r = static_cast<const uint32_t *>(warp.lanes[lane].in);
    unsigned row = lane / 4, column = 2 * (lane % 4);
    std::memcpy(&a[row][column], &r[0], 4);
    std::memcpy(&a[row + 8][column], &r[1], 4);
    std::memcpy(&a[row][column + 8], &r[2], 4);
    std::memcpy(&a[row + 8][column + 8], &r[3], 4);
    for (unsigned i = 0; i < 4; ++i) // lanes of a row hold a column of B
      b[column + i % 2 + 8 * (i / 2)][row] = static_cast<uint16_t>(r[4 + i / 2] >> 16 * (i % 2));
    std::memcpy(&c[row][column], &r[6], 8);
    std::memcpy(&c[row + 8][column], &r[8], 8);
  }
  mmaM16N8K16(bf16, a, b, c);
  for (unsigned lane = 0; lane < 32; ++lane) {
    auto *r = static_cast<uint32_t *>(warp.lanes[lane].out);
    unsigned row = lane / 4, column = 2 * (lane % 4);
    std::memcpy(&r[6], &c[row][column], 8);
    std::memcpy(&r[8], &c[row + 8][column], 8);
  }
  warp.cta->count(Counter::Mma);
}

void cfc_emu_mma(Fiber *fiber, uint32_t *registers, uint32_t type, uint32_t location) {
  Warp::Arguments &mine = fiber->warp->lanes[fiber->lane];
  mine.in = mine.out = registers;
  rendezvous(fiber, location, [&](Warp &warp) { multiply(warp, type == 1); });
}
