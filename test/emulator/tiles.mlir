// One warp multiplies A (16 x 16, row-major) by B (8 x 16: row n holds column n), both f16 in global memory, by ldmatrix
// and mma, and transposes an 8 x 8 tile of A by movmatrix and by ldmatrix.trans.
// Table: A, B, D (16 x 8 f32), transposed (2 x 32 i32).
// RUN: cfc-opt %s --simt-to-emu | FileCheck %s
// CHECK: llvm.call @cfc_emu_ldmatrix
// CHECK: llvm.call @cfc_emu_mma
simt.kernel @tiles(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 768 : i64, ctas_per_sm = 1 : i32} {
  %c1 = arith.constant 1 : i32
  %c2 = arith.constant 2 : i32
  %c3 = arith.constant 3 : i32
  %c4 = arith.constant 4 : i32
  %c7 = arith.constant 7 : i32
  %c8 = arith.constant 8 : i32
  %c15 = arith.constant 15 : i32
  %c16 = arith.constant 16 : i32
  %c32 = arith.constant 32 : i32
  %c64 = arith.constant 64 : i32
  %c72 = arith.constant 72 : i32
  %c80 = arith.constant 80 : i32
  %c88 = arith.constant 88 : i32
  %c128 = arith.constant 128 : i32
  %c256 = arith.constant 256 : i32
  %c512 = arith.constant 512 : i32
  %zero = arith.constant 0.0 : f32
  %lane = simt.thread_id
  %shared = simt.shared_base
  %aEntry = simt.offset %table, %c64 : !simt.ptr<global>, i32
  %a = simt.load_ptr %aEntry : !simt.ptr<global> -> !simt.ptr<global>
  %bEntry = simt.offset %table, %c72 : !simt.ptr<global>, i32
  %b = simt.load_ptr %bEntry : !simt.ptr<global> -> !simt.ptr<global>
  %dEntry = simt.offset %table, %c80 : !simt.ptr<global>, i32
  %d = simt.load_ptr %dEntry : !simt.ptr<global> -> !simt.ptr<global>
  %tEntry = simt.offset %table, %c88 : !simt.ptr<global>, i32
  %t = simt.load_ptr %tEntry : !simt.ptr<global> -> !simt.ptr<global>

  // Each lane moves 16 bytes of A, half of the lanes 16 bytes of B.
  %laneAt = arith.muli %lane, %c16 : i32
  %aFrom = simt.offset %a, %laneAt : !simt.ptr<global>, i32
  %aTo = simt.offset %shared, %laneAt : !simt.ptr<shared>, i32
  %aPart = simt.load %aFrom : !simt.ptr<global> -> vector<8xf16>
  simt.store %aPart, %aTo : vector<8xf16>, !simt.ptr<shared>
  %bShared = simt.offset %shared, %c512 : !simt.ptr<shared>, i32
  %half = arith.cmpi ult, %lane, %c16 : i32
  scf.if %half {
    %bFrom = simt.offset %b, %laneAt : !simt.ptr<global>, i32
    %bTo = simt.offset %bShared, %laneAt : !simt.ptr<shared>, i32
    %bPart = simt.load %bFrom : !simt.ptr<global> -> vector<8xf16>
    simt.store %bPart, %bTo : vector<8xf16>, !simt.ptr<shared>
  }
  simt.syncwarp

  // Matrices 0 and 1 of A are rows 0-7 and 8-15 of columns 0-7, 2 and 3 of columns 8-15.
  %row = arith.andi %lane, %c15 : i32
  %rowAt = arith.muli %row, %c32 : i32
  %columnHalf = arith.divui %lane, %c16 : i32
  %columnAt = arith.muli %columnHalf, %c16 : i32
  %aAt = arith.addi %rowAt, %columnAt : i32
  %aAddress = simt.offset %shared, %aAt : !simt.ptr<shared>, i32
  %a0, %a1, %a2, %a3 = simt.ldmatrix %aAddress : i32, i32, i32, i32
  %bRow = arith.andi %lane, %c7 : i32
  %bRowAt = arith.muli %bRow, %c32 : i32
  %bHalf0 = arith.divui %lane, %c8 : i32
  %bHalf = arith.andi %bHalf0, %c1 : i32
  %bColumnAt = arith.muli %bHalf, %c16 : i32
  %bAt = arith.addi %bRowAt, %bColumnAt : i32
  %bAddress = simt.offset %bShared, %bAt : !simt.ptr<shared>, i32
  %b0, %b1 = simt.ldmatrix %bAddress : i32, i32
  %d0, %d1, %d2, %d3 = simt.mma f16 a(%a0, %a1, %a2, %a3) b(%b0, %b1) c(%zero, %zero, %zero, %zero)

  %g = arith.divui %lane, %c4 : i32
  %q = arith.andi %lane, %c3 : i32
  %dRow = arith.muli %g, %c32 : i32
  %dColumn = arith.muli %q, %c8 : i32
  %dAt = arith.addi %dRow, %dColumn : i32
  %dTop = simt.offset %d, %dAt : !simt.ptr<global>, i32
  %dTop1 = simt.offset %dTop, %c4 : !simt.ptr<global>, i32
  %dLow = simt.offset %dTop, %c256 : !simt.ptr<global>, i32
  %dLow1 = simt.offset %dLow, %c4 : !simt.ptr<global>, i32
  simt.store %d0, %dTop : f32, !simt.ptr<global>
  simt.store %d1, %dTop1 : f32, !simt.ptr<global>
  simt.store %d2, %dLow : f32, !simt.ptr<global>
  simt.store %d3, %dLow1 : f32, !simt.ptr<global>

  %moved = simt.movmatrix %a0
  %loaded = simt.ldmatrix trans %aAddress : i32
  %tAt = arith.muli %lane, %c4 : i32
  %t0 = simt.offset %t, %tAt : !simt.ptr<global>, i32
  %t1 = simt.offset %t0, %c128 : !simt.ptr<global>, i32
  simt.store %moved, %t0 : i32, !simt.ptr<global>
  simt.store %loaded, %t1 : i32, !simt.ptr<global>
  simt.return
}
