//===- PackingKernel.h - Packs and unpacks weights on a GPU -----*- C++ -*-===//
//
// PTX text, so that the runtime needs no compiler to be built: the driver compiles it when a weight is first
// packed. A thread moves one 16-byte chunk of the packed weight; it finds its place in the native one as
// packedChunk in Packing.cpp does.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_PACKINGKERNEL_H
#define CFC_RUNTIME_SRC_PACKINGKERNEL_H

namespace cfc::runtime {

inline constexpr const char *kPackingKernelName = "cfc_move_packed";

/// All parameters are 64-bit: the native and the packed weight; rows, columns, columns of a group, blocks of
/// a group, blocks of a row of blocks; chunks of the packed weight; 0 to pack or 1 to unpack. Addresses: the
/// packed one is a multiple of 16, the native one of 2; the two weights do not overlap.
inline constexpr const char *kPackingKernel = R"(
.version 7.8
.target sm_90
.address_size 64

.visible .entry cfc_move_packed(.param .u64 native_, .param .u64 packed_, .param .u64 rows_, .param .u64 columns_,
                                .param .u64 group_, .param .u64 group_blocks_, .param .u64 column_blocks_,
                                .param .u64 chunks_, .param .u64 unpack_)
{
  .reg .pred outside, empty, whole, unpacking, end;
  .reg .b16 element;
  .reg .b32 cta, threads, thread, a, b, c, d;
  .reg .b64 native, packed, rows, columns, group, group_blocks, column_blocks, chunks, unpack;
  .reg .b64 index, block, row, column, chunk, group_index, in_group, left, from, to, t;

  // The chunk of this thread.
  ld.param.u64 chunks, [chunks_];
  mov.u32 cta, %ctaid.x;
  mov.u32 threads, %ntid.x;
  mov.u32 thread, %tid.x;
  cvt.u64.u32 t, thread;
  mul.wide.u32 index, cta, threads;
  add.u64 index, index, t;
  setp.ge.u64 outside, index, chunks;
  @outside ret;
  ld.param.u64 native, [native_];
  ld.param.u64 packed, [packed_];
  ld.param.u64 rows, [rows_];
  ld.param.u64 columns, [columns_];
  ld.param.u64 group, [group_];
  ld.param.u64 group_blocks, [group_blocks_];
  ld.param.u64 column_blocks, [column_blocks_];
  ld.param.u64 unpack, [unpack_];

  // Its block, and row and chunk in that: 512 chunks a block, 8 a row, xored with the row.
  shr.u64 block, index, 9;
  shr.u64 row, index, 3;
  xor.b64 chunk, index, row;
  and.b64 row, row, 63;
  and.b64 chunk, chunk, 7;

  // The row in the weight, and which block of the row of blocks it is.
  div.u64 t, block, column_blocks;
  mad.lo.u64 row, t, 64, row;
  mul.lo.u64 t, t, column_blocks;
  sub.u64 block, block, t;

  // The group, the first column in it and in the weight.
  div.u64 group_index, block, group_blocks;
  mul.lo.u64 t, group_index, group_blocks;
  sub.u64 block, block, t;
  shl.b64 in_group, block, 6;
  mad.lo.u64 in_group, chunk, 8, in_group;
  mad.lo.u64 column, group_index, group, in_group;

  // Elements that the weight has there: 0 to 8.
  sub.u64 left, group, in_group;
  sub.u64 t, columns, column;
  min.s64 left, left, t;
  max.s64 left, left, 0;
  min.s64 left, left, 8;
  setp.ge.u64 empty, row, rows;
  selp.b64 left, 0, left, empty;

  mad.lo.u64 t, row, columns, column;
  mad.lo.u64 native, t, 2, native;
  mad.lo.u64 packed, index, 16, packed;
  setp.ne.u64 unpacking, unpack, 0;
  selp.b64 from, packed, native, unpacking;
  selp.b64 to, native, packed, unpacking;

  // All of a chunk at a time where both places allow it.
  and.b64 t, native, 15;
  setp.eq.u64 whole, t, 0;
  setp.eq.and.u64 whole, left, 8, whole;
  @!whole bra apart;
  ld.global.v4.b32 {a, b, c, d}, [from];
  st.global.v4.b32 [to], {a, b, c, d};
  ret;

apart:
  mov.b32 a, 0;
  @!unpacking st.global.v4.b32 [to], {a, a, a, a};
next:
  setp.eq.u64 end, left, 0;
  @end ret;
  ld.global.b16 element, [from];
  st.global.b16 [to], element;
  add.u64 from, from, 2;
  add.u64 to, to, 2;
  sub.u64 left, left, 1;
  bra next;
}
)";

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_PACKINGKERNEL_H
