// Every cluster (one CTA of 64 threads) writes a partial sum to the workspace; the last to arrive adds all of them in
// order and leaves the counter zero. Table: output (64 f32). Workspace: counter (i32), partials from byte 256.
// RUN: cfc-opt %s --simt-to-emu | FileCheck %s
// CHECK: llvm.call @cfc_emu_atomic
simt.kernel @last_arriver(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 64 : i32, cluster = 1 : i32, shared_bytes = 16 : i64, ctas_per_sm = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %c64 = arith.constant 64 : i32
  %c100 = arith.constant 100 : i32
  %c256 = arith.constant 256 : i32
  %thread = simt.thread_id
  %cluster = simt.cluster_id
  %count = simt.num_clusters
  %shared = simt.shared_base
  %partials = simt.offset %workspace, %c256 : !simt.ptr<global>, i32
  %threadAt = arith.muli %thread, %c4 : i32
  %column = simt.offset %partials, %threadAt : !simt.ptr<global>, i32
  %rowAt = arith.muli %cluster, %c256 : i32
  %place = simt.offset %column, %rowAt : !simt.ptr<global>, i32
  %hundreds = arith.muli %cluster, %c100 : i32
  %number = arith.addi %hundreds, %thread : i32
  %value = arith.sitofp %number : i32 to f32
  simt.store %value, %place : f32, !simt.ptr<global>
  simt.barrier 0, 64 // before the arrival
  %first = arith.cmpi eq, %thread, %c0 : i32
  scf.if %first {
    %old = simt.atomic add acq_rel gpu %workspace, %c1 : !simt.ptr<global>, i32
    simt.store %old, %shared : i32, !simt.ptr<shared>
  }
  simt.barrier 0, 64 // after the arrival
  %arrived = simt.load %shared : !simt.ptr<shared> -> i32
  %lastCluster = arith.subi %count, %c1 : i32
  %last = arith.cmpi eq, %arrived, %lastCluster : i32
  scf.if %last {
    %zero = arith.constant 0.0 : f32
    %sum = scf.for %i = %c0 to %count step %c1 iter_args(%acc = %zero) -> (f32) : i32 {
      %at = arith.muli %i, %c256 : i32
      %from = simt.offset %column, %at : !simt.ptr<global>, i32
      %part = simt.load %from : !simt.ptr<global> -> f32
      %next = arith.addf %acc, %part : f32
      scf.yield %next : f32
    }
    %entry = simt.offset %table, %c64 : !simt.ptr<global>, i32
    %output = simt.load_ptr %entry : !simt.ptr<global> -> !simt.ptr<global>
    %out = simt.offset %output, %threadAt : !simt.ptr<global>, i32
    simt.store %sum, %out : f32, !simt.ptr<global>
    scf.if %first {
      simt.store %c0, %workspace : i32, !simt.ptr<global>
    }
  }
  simt.return
}
