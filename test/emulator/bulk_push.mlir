// Two CTAs exchange 256 bytes by bulk copies and add their own; thread 0 then writes the sums by a bulk store.
// Table: output (2 x 64 f32).
// RUN: cfc-opt %s --simt-to-emu | FileCheck %s
// CHECK: llvm.call @cfc_emu_bulk_push
// CHECK: llvm.call @cfc_emu_bulk_store
simt.kernel @bulk_push(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 64 : i32, cluster = 2 : i32, shared_bytes = 1024 : i64, ctas_per_sm = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %c64 = arith.constant 64 : i32
  %c256 = arith.constant 256 : i32
  %c512 = arith.constant 512 : i32
  %c1000 = arith.constant 1000 : i32
  %thread = simt.thread_id
  %rank = simt.cta_rank
  %shared = simt.shared_base
  %sendBuffer = simt.offset %shared, %c256 : !simt.ptr<shared>, i32
  %receiveBuffer = simt.offset %shared, %c512 : !simt.ptr<shared>, i32
  %first = arith.cmpi eq, %thread, %c0 : i32
  scf.if %first {
    simt.mbarrier_init %shared, %c1
    simt.fence_mbarrier_init
    simt.mbarrier_arrive_expect_tx %shared, %c256
  }
  simt.cluster_arrive
  simt.cluster_wait
  %threadAt = arith.muli %thread, %c4 : i32
  %send = simt.offset %sendBuffer, %threadAt : !simt.ptr<shared>, i32
  %thousands = arith.muli %rank, %c1000 : i32
  %number = arith.addi %thousands, %thread : i32
  %value = arith.sitofp %number : i32 to f32
  simt.store %value, %send : f32, !simt.ptr<shared>
  simt.fence_proxy_async // before the push
  simt.barrier 0, 64
  scf.if %first {
    %peer = arith.xori %rank, %c1 : i32
    %to = simt.map_rank %receiveBuffer, %peer
    %bar = simt.map_rank %shared, %peer
    simt.bulk_push %to, %sendBuffer, %c256, %bar
  }
  simt.mbarrier_wait cluster %shared, %c0
  %receive = simt.offset %receiveBuffer, %threadAt : !simt.ptr<shared>, i32
  %got = simt.load %receive : !simt.ptr<shared> -> f32
  %sum = arith.addf %got, %value : f32
  simt.store %sum, %receive : f32, !simt.ptr<shared>
  simt.fence_proxy_async // before the store
  simt.barrier 0, 64
  scf.if %first {
    %entry = simt.offset %table, %c64 : !simt.ptr<global>, i32
    %output = simt.load_ptr %entry : !simt.ptr<global> -> !simt.ptr<global>
    %rowAt = arith.muli %rank, %c256 : i32
    %row = simt.offset %output, %rowAt : !simt.ptr<global>, i32
    simt.bulk_store %row, %receiveBuffer, %c256 : !simt.ptr<global>
    simt.bulk_commit
    simt.bulk_wait 0
  }
  simt.cluster_arrive // before the exit
  simt.cluster_wait   // before the exit
  simt.return
}
