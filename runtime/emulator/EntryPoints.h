//===- EntryPoints.h - What compiled kernels call --------------------------===//
//
// One function for each simt op that touches memory, other threads or the
// hardware's units. `location` is an id in the program's table of locations.
// `Jit.cpp` makes the functions known to compiled code by their names.
//
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>

namespace cfc::emu {
struct Fiber;
}
using CfcFiber = cfc::emu::Fiber;

extern "C" {
// Loads and stores return where the value is to be read or written.
const void *cfc_emu_load_global(CfcFiber *, const char *address, uint32_t bytes, uint32_t location);
const void *cfc_emu_load_shared(CfcFiber *, const char *address, uint32_t bytes, uint32_t location);
const void *cfc_emu_load_cluster(CfcFiber *, const char *address, uint32_t bytes, uint32_t location);
void *cfc_emu_store_global(CfcFiber *, char *address, uint32_t bytes, uint32_t location);
void *cfc_emu_store_shared(CfcFiber *, char *address, uint32_t bytes, uint32_t location);
void *cfc_emu_store_cluster(CfcFiber *, char *address, uint32_t bytes, uint32_t location);
char *cfc_emu_map_rank(CfcFiber *, char *address, uint32_t rank, uint32_t location);
// `type`: 0 i32, 1 i64, 2 f32; kind, ordering, scope and space as in simt. Values as bits.
uint64_t cfc_emu_atomic(CfcFiber *, char *address, uint64_t value, uint32_t kind, uint32_t ordering,
                        uint32_t scope, uint32_t space, uint32_t type, uint32_t location);

void cfc_emu_fence(CfcFiber *, uint32_t scope, uint32_t location);
void cfc_emu_fence_proxy_async(CfcFiber *, uint32_t location);
// The ldmatrix reads of the thread are done.
void cfc_emu_reads_done(CfcFiber *, uint32_t location);
void cfc_emu_fence_mbarrier_init(CfcFiber *, uint32_t location);
void cfc_emu_barrier(CfcFiber *, uint32_t id, uint32_t threads, uint32_t location);
void cfc_emu_syncwarp(CfcFiber *, uint32_t location);
void cfc_emu_cluster_arrive(CfcFiber *, uint32_t relaxed, uint32_t location);
void cfc_emu_cluster_wait(CfcFiber *, uint32_t location);
void cfc_emu_grid_wait(CfcFiber *, uint32_t location);
void cfc_emu_grid_barrier(CfcFiber *, char *counter, uint32_t ctas, uint32_t location);
// 16 bytes each: where to put them, and where they are once no word of them is 0.
void *cfc_emu_store_relaxed(CfcFiber *, char *address, uint32_t location);
const void *cfc_emu_await_words(CfcFiber *, const char *address, uint32_t location);
// Accesses of the launch so far.
uint64_t cfc_emu_global_timer(CfcFiber *, uint32_t location);

void cfc_emu_mbarrier_init(CfcFiber *, char *barrier, uint32_t count, uint32_t location);
void cfc_emu_mbarrier_arrive(CfcFiber *, char *barrier, uint32_t scope, uint32_t remote, uint32_t location);
void cfc_emu_mbarrier_expect(CfcFiber *, char *barrier, uint32_t bytes, uint32_t location);
void cfc_emu_mbarrier_wait(CfcFiber *, char *barrier, uint32_t parity, uint32_t scope, uint32_t location);

void cfc_emu_bulk_load(CfcFiber *, char *target, const char *source, uint32_t bytes, char *barrier,
                       uint32_t location);
void cfc_emu_prefetch(CfcFiber *, const char *source, uint32_t bytes, uint32_t location);
void cfc_emu_tensor_map_acquire(CfcFiber *, const char *map, uint32_t location);
// `rank` coordinates; the others are 0.
void cfc_emu_tensor_load(CfcFiber *, char *target, const char *map, int32_t at0, int32_t at1, int32_t at2,
                         int32_t at3, uint32_t rank, char *barrier, uint32_t location);
void cfc_emu_bulk_push(CfcFiber *, char *target, const char *source, uint32_t bytes, char *barrier,
                       uint32_t location);
// `value`: the bytes to store.
void cfc_emu_store_async(CfcFiber *, char *target, const void *value, uint32_t bytes, char *barrier,
                         uint32_t location);
void cfc_emu_bulk_store(CfcFiber *, char *target, const char *source, uint32_t bytes, uint32_t location);
void cfc_emu_bulk_commit(CfcFiber *, uint32_t location);
void cfc_emu_bulk_wait(CfcFiber *, uint32_t pending, uint32_t location);

uint32_t cfc_emu_shuffle(CfcFiber *, uint32_t value, uint32_t lane, uint32_t mode, uint32_t location);
void cfc_emu_ldmatrix(CfcFiber *, const char *address, uint32_t matrices, uint32_t trans, uint32_t *out,
                      uint32_t location);
uint32_t cfc_emu_movmatrix(CfcFiber *, uint32_t value, uint32_t location);
// `registers`: 4 of A, 2 of B, 4 of C; the 4 of D replace C.
void cfc_emu_mma(CfcFiber *, uint32_t *registers, uint32_t type, uint32_t location);

float cfc_emu_exp2(float);
float cfc_emu_log2(float);
float cfc_emu_rsqrt(float);
/// Two f8E4M3FN in 16 bits as two f16, or of the other `type` of an mma two bf16; and back from two f32.
uint32_t cfc_emu_unpack_e4m3(uint32_t both, uint32_t type);
uint32_t cfc_emu_pack_e4m3(float lo, float hi);
void cfc_emu_poll(CfcFiber *, uint32_t location); // a step of a loop that may not end
void cfc_emu_trap(CfcFiber *, uint32_t location);
}
