// A producer warp fills a ring of three slots with bulk loads, two copies a tile; a consumer warp adds the tiles up.
// Table: input (tiles x 128 f32), output (128 f32), number of tiles.
// RUN: cfc-opt %s --simt-to-emu | FileCheck %s
// CHECK: llvm.func @ring(
// CHECK: llvm.call @cfc_emu_mbarrier_wait
simt.kernel @ring(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 64 : i32, cluster = 1 : i32, shared_bytes = 2560 : i64, ctas_per_sm = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c3 = arith.constant 3 : i32
  %c8 = arith.constant 8 : i32
  %c16 = arith.constant 16 : i32
  %c32 = arith.constant 32 : i32
  %c64 = arith.constant 64 : i32
  %c72 = arith.constant 72 : i32
  %c80 = arith.constant 80 : i32
  %c256 = arith.constant 256 : i32
  %c512 = arith.constant 512 : i32
  %c1024 = arith.constant 1024 : i32
  %thread = simt.thread_id
  %shared = simt.shared_base
  %slots = simt.offset %shared, %c1024 : !simt.ptr<shared>, i32
  %first = arith.cmpi eq, %thread, %c0 : i32
  scf.if %first {
    scf.for %s = %c0 to %c3 step %c1 : i32 {
      %at = arith.muli %s, %c8 : i32
      %full = simt.offset %shared, %at : !simt.ptr<shared>, i32
      %empty = simt.offset %full, %c32 : !simt.ptr<shared>, i32
      simt.mbarrier_init %full, %c1
      simt.mbarrier_init %empty, %c32
    }
    simt.fence_mbarrier_init
  }
  simt.barrier 0, 64
  %inputEntry = simt.offset %table, %c64 : !simt.ptr<global>, i32
  %input = simt.load_ptr %inputEntry : !simt.ptr<global> -> !simt.ptr<global>
  %outputEntry = simt.offset %table, %c72 : !simt.ptr<global>, i32
  %output = simt.load_ptr %outputEntry : !simt.ptr<global> -> !simt.ptr<global>
  %tilesEntry = simt.offset %table, %c80 : !simt.ptr<global>, i32
  %tiles64 = simt.load %tilesEntry : !simt.ptr<global> -> i64
  %tiles = arith.trunci %tiles64 : i64 to i32
  %produces = arith.cmpi eq, %thread, %c32 : i32
  scf.if %produces {
    scf.for %t = %c0 to %tiles step %c1 : i32 {
      %slot = arith.remui %t, %c3 : i32
      %round = arith.divui %t, %c3 : i32
      %parity = arith.andi %round, %c1 : i32
      %before = arith.xori %parity, %c1 : i32
      %at = arith.muli %slot, %c8 : i32
      %full = simt.offset %shared, %at : !simt.ptr<shared>, i32
      %empty = simt.offset %full, %c32 : !simt.ptr<shared>, i32
      simt.mbarrier_wait cta %empty, %before
      simt.mbarrier_arrive_expect_tx %full, %c512
      %slotAt = arith.muli %slot, %c512 : i32
      %target = simt.offset %slots, %slotAt : !simt.ptr<shared>, i32
      %target2 = simt.offset %target, %c256 : !simt.ptr<shared>, i32
      %sourceAt = arith.muli %t, %c512 : i32
      %source = simt.offset %input, %sourceAt : !simt.ptr<global>, i32
      %source2 = simt.offset %source, %c256 : !simt.ptr<global>, i32
      simt.bulk_load %target, %source, %c256, %full : !simt.ptr<global>
      simt.bulk_load %target2, %source2, %c256, %full : !simt.ptr<global>
    }
  }
  %consumes = arith.cmpi ult, %thread, %c32 : i32
  scf.if %consumes {
    %zero = arith.constant dense<0.0> : vector<4xf32>
    %laneAt = arith.muli %thread, %c16 : i32
    %sum = scf.for %t = %c0 to %tiles step %c1 iter_args(%acc = %zero) -> (vector<4xf32>) : i32 {
      %slot = arith.remui %t, %c3 : i32
      %round = arith.divui %t, %c3 : i32
      %parity = arith.andi %round, %c1 : i32
      %at = arith.muli %slot, %c8 : i32
      %full = simt.offset %shared, %at : !simt.ptr<shared>, i32
      %empty = simt.offset %full, %c32 : !simt.ptr<shared>, i32
      simt.mbarrier_wait cta %full, %parity
      %slotAt = arith.muli %slot, %c512 : i32
      %tile = simt.offset %slots, %slotAt : !simt.ptr<shared>, i32
      %mine = simt.offset %tile, %laneAt : !simt.ptr<shared>, i32
      %value = simt.load %mine : !simt.ptr<shared> -> vector<4xf32>
      simt.fence_proxy_async // before the release
      simt.mbarrier_arrive cta %empty : !simt.ptr<shared>
      %next = arith.addf %acc, %value : vector<4xf32>
      scf.yield %next : vector<4xf32>
    }
    %place = simt.offset %output, %laneAt : !simt.ptr<global>, i32
    simt.store %sum, %place : vector<4xf32>, !simt.ptr<global>
  }
  simt.return
}
