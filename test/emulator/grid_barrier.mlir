// Every cluster (two CTAs of 64 threads) writes its number, waits for all, and adds up what all wrote; twice, each time
// with a counter of its own. Table: output (64 f32). Workspace: two counters (i32), numbers from bytes 256 and 4352.
// RUN: cfc-opt %s --simt-to-emu | FileCheck %s
// CHECK: llvm.call @cfc_emu_grid_barrier
simt.kernel @grid_barrier(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 64 : i32, cluster = 2 : i32, shared_bytes = 16 : i64, ctas_per_sm = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c2 = arith.constant 2 : i32
  %c4 = arith.constant 4 : i32
  %c256 = arith.constant 256 : i32
  %c4096 = arith.constant 4096 : i32
  %zero = arith.constant 0.0 : f32
  %thread = simt.thread_id
  %rank = simt.cta_rank
  %cluster = simt.cluster_id
  %clusters = simt.num_clusters
  %ctas = arith.muli %clusters, %c2 : i32
  %twice = arith.muli %cluster, %c2 : i32
  %cta = arith.addi %twice, %rank : i32
  %first = arith.cmpi eq, %thread, %c0 : i32
  %number = arith.sitofp %cta : i32 to f32
  %at = arith.muli %thread, %c4 : i32
  %rowAt = arith.muli %cta, %c256 : i32
  %column = simt.offset %workspace, %at : !simt.ptr<global>, i32
  %total = scf.for %round = %c0 to %c2 step %c1 iter_args(%carry = %number) -> (f32) : i32 {
    %half = arith.muli %round, %c4096 : i32
    %base = arith.addi %half, %c256 : i32
    %rows = simt.offset %column, %base : !simt.ptr<global>, i32
    %mine = simt.offset %rows, %rowAt : !simt.ptr<global>, i32
    simt.store %carry, %mine : f32, !simt.ptr<global>
    simt.barrier 0, 64 // before the grid's
    %counterAt = arith.muli %round, %c4 : i32
    %counter = simt.offset %workspace, %counterAt : !simt.ptr<global>, i32
    scf.if %first {
      simt.grid_barrier %counter, %ctas : !simt.ptr<global>
    }
    simt.barrier 0, 64 // behind the grid's
    %sum = scf.for %i = %c0 to %ctas step %c1 iter_args(%acc = %zero) -> (f32) : i32 {
      %offset = arith.muli %i, %c256 : i32
      %from = simt.offset %rows, %offset : !simt.ptr<global>, i32
      %value = simt.load %from : !simt.ptr<global> -> f32
      %next = arith.addf %acc, %value : f32
      scf.yield %next : f32
    }
    scf.yield %sum : f32
  }
  %last = arith.cmpi eq, %cta, %c1 : i32
  scf.if %last {
    %c64 = arith.constant 64 : i32
    %entry = simt.offset %table, %c64 : !simt.ptr<global>, i32
    %output = simt.load_ptr %entry : !simt.ptr<global> -> !simt.ptr<global>
    %to = simt.offset %output, %at : !simt.ptr<global>, i32
    simt.store %total, %to : f32, !simt.ptr<global>
  }
  simt.return
}
