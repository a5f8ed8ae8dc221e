// The same as push.mlir by stores that count their bytes: nobody fences or arrives, and each round has a barrier of its
// own, since a peer may be a round ahead. Table: output (clusters x 4 x 3 x 64 f32).
// RUN: cfc-opt %s --simt-to-emu | FileCheck %s
// CHECK: llvm.call @cfc_emu_map_rank
// CHECK: llvm.call @cfc_emu_store_async
simt.kernel @store_async(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 64 : i32, cluster = 4 : i32, shared_bytes = 3072 : i64, ctas_per_sm = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c3 = arith.constant 3 : i32
  %c4 = arith.constant 4 : i32
  %c12 = arith.constant 12 : i32
  %c64 = arith.constant 64 : i32
  %c256 = arith.constant 256 : i32
  %c1024 = arith.constant 1024 : i32
  %thread = simt.thread_id
  %rank = simt.cta_rank
  %cluster = simt.cluster_id
  %shared = simt.shared_base
  %slots = simt.offset %shared, %c1024 : !simt.ptr<shared>, i32
  %c8 = arith.constant 8 : i32
  %second = simt.offset %shared, %c8 : !simt.ptr<shared>, i32
  %first = arith.cmpi eq, %thread, %c0 : i32
  scf.if %first {
    simt.mbarrier_init %shared, %c1
    simt.mbarrier_init %second, %c1
    simt.fence_mbarrier_init
  }
  simt.cluster_arrive
  simt.cluster_wait
  %entry = simt.offset %table, %c64 : !simt.ptr<global>, i32
  %output = simt.load_ptr %entry : !simt.ptr<global> -> !simt.ptr<global>
  %threadAt = arith.muli %thread, %c4 : i32
  %scale = arith.shli %c1, %rank : i32
  scf.for %round = %c0 to %c3 step %c1 : i32 {
    %parity = arith.andi %round, %c1 : i32
    %bufferAt = arith.muli %parity, %c1024 : i32
    %buffer = simt.offset %slots, %bufferAt : !simt.ptr<shared>, i32
    %mine = simt.offset %buffer, %threadAt : !simt.ptr<shared>, i32
    %n = arith.addi %thread, %round : i32
    %n1 = arith.addi %n, %c1 : i32
    %n2 = arith.muli %n1, %scale : i32
    %value = arith.sitofp %n2 : i32 to f32
    %rankAt = arith.muli %rank, %c256 : i32
    %source = simt.offset %mine, %rankAt : !simt.ptr<shared>, i32
    %barrierAt = arith.muli %parity, %c8 : i32
    %barrier = simt.offset %shared, %barrierAt : !simt.ptr<shared>, i32
    %use = arith.shrui %round, %c1 : i32
    scf.if %first {
      simt.mbarrier_arrive_expect_tx %barrier, %c1024
    }
    %bits = arith.bitcast %value : f32 to i32
    scf.for %peer = %c0 to %c4 step %c1 : i32 {
      %there = simt.map_rank %source, %peer
      %bar = simt.map_rank %barrier, %peer
      simt.store_async %bits, %there, %bar : i32
    }
    simt.mbarrier_wait cluster %barrier, %use
    %zero = arith.constant 0.0 : f32
    %sum = scf.for %peer = %c0 to %c4 step %c1 iter_args(%acc = %zero) -> (f32) : i32 {
      %peerAt = arith.muli %peer, %c256 : i32
      %from = simt.offset %mine, %peerAt : !simt.ptr<shared>, i32
      %got = simt.load %from : !simt.ptr<shared> -> f32
      %next = arith.addf %acc, %got : f32
      scf.yield %next : f32
    }
    %cta = arith.muli %cluster, %c12 : i32
    %inCluster = arith.muli %rank, %c3 : i32
    %row0 = arith.addi %cta, %inCluster : i32
    %row = arith.addi %row0, %round : i32
    %rowAt = arith.muli %row, %c256 : i32
    %out = simt.offset %output, %rowAt : !simt.ptr<global>, i32
    %place = simt.offset %out, %threadAt : !simt.ptr<global>, i32
    simt.store %sum, %place : f32, !simt.ptr<global>
  }
  simt.return
}
