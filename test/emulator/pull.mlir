// Every CTA of a cluster of 2 writes its own shared memory; its peer reads it. Table: output (2 x 32 i32).
// RUN: cfc-opt %s --simt-to-emu | FileCheck %s
// CHECK: llvm.call @cfc_emu_load_cluster
simt.kernel @pull(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 2 : i32, shared_bytes = 128 : i64, ctas_per_sm = 1 : i32} {
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %c64 = arith.constant 64 : i32
  %c100 = arith.constant 100 : i32
  %c128 = arith.constant 128 : i32
  %thread = simt.thread_id
  %rank = simt.cta_rank
  %shared = simt.shared_base
  %threadAt = arith.muli %thread, %c4 : i32
  %mine = simt.offset %shared, %threadAt : !simt.ptr<shared>, i32
  %hundreds = arith.muli %rank, %c100 : i32
  %value = arith.addi %hundreds, %thread : i32
  simt.store %value, %mine : i32, !simt.ptr<shared>
  simt.cluster_arrive // before the read
  simt.cluster_wait   // before the read
  %peer = arith.xori %rank, %c1 : i32
  %there = simt.map_rank %mine, %peer
  %got = simt.load %there : !simt.ptr<cluster> -> i32
  %entry = simt.offset %table, %c64 : !simt.ptr<global>, i32
  %output = simt.load_ptr %entry : !simt.ptr<global> -> !simt.ptr<global>
  %rowAt = arith.muli %rank, %c128 : i32
  %row = simt.offset %output, %rowAt : !simt.ptr<global>, i32
  %place = simt.offset %row, %threadAt : !simt.ptr<global>, i32
  simt.store %got, %place : i32, !simt.ptr<global>
  simt.cluster_arrive // before the exit
  simt.cluster_wait   // before the exit
  simt.return
}
