// A warp copies a box of a tensor through shared memory to the output.
// Table: output; x, y, z and the bytes of a box as i32. A tensor map lies at byte 128.
// RUN: cfc-opt %s --simt-to-emu | FileCheck %s
// CHECK: llvm.func @tensor_load(
// CHECK: llvm.call @cfc_emu_tensor_map_acquire
// CHECK: llvm.call @cfc_emu_tensor_load
simt.kernel @tensor_load(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 17408 : i64, ctas_per_sm = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c16 = arith.constant 16 : i32
  %c64 = arith.constant 64 : i32
  %c72 = arith.constant 72 : i32
  %c76 = arith.constant 76 : i32
  %c80 = arith.constant 80 : i32
  %c84 = arith.constant 84 : i32
  %c128 = arith.constant 128 : i32
  %c512 = arith.constant 512 : i32
  %c1024 = arith.constant 1024 : i32
  %thread = simt.thread_id
  %shared = simt.shared_base
  %box = simt.offset %shared, %c1024 : !simt.ptr<shared>, i32
  %outputEntry = simt.offset %table, %c64 : !simt.ptr<global>, i32
  %output = simt.load_ptr %outputEntry : !simt.ptr<global> -> !simt.ptr<global>
  %xEntry = simt.offset %table, %c72 : !simt.ptr<global>, i32
  %yEntry = simt.offset %table, %c76 : !simt.ptr<global>, i32
  %zEntry = simt.offset %table, %c80 : !simt.ptr<global>, i32
  %bytesEntry = simt.offset %table, %c84 : !simt.ptr<global>, i32
  %x = simt.load %xEntry : !simt.ptr<global> -> i32
  %y = simt.load %yEntry : !simt.ptr<global> -> i32
  %z = simt.load %zEntry : !simt.ptr<global> -> i32
  %bytes = simt.load %bytesEntry : !simt.ptr<global> -> i32
  %map = simt.offset %table, %c128 : !simt.ptr<global>, i32
  %first = arith.cmpi eq, %thread, %c0 : i32
  scf.if %first {
    simt.mbarrier_init %shared, %c1
    simt.fence_mbarrier_init
    simt.tensor_map_acquire %map : !simt.ptr<global>
    simt.mbarrier_arrive_expect_tx %shared, %bytes
    simt.tensor_load %box, %map[%x, %y], %shared : !simt.ptr<global>
  }
  simt.syncwarp
  simt.mbarrier_wait cta %shared, %c0
  %begin = arith.muli %thread, %c16 : i32
  scf.for %at = %begin to %bytes step %c512 : i32 {
    %source = simt.offset %box, %at : !simt.ptr<shared>, i32
    %target = simt.offset %output, %at : !simt.ptr<global>, i32
    %value = simt.load %source : !simt.ptr<shared> -> vector<4xf32>
    simt.store %value, %target : vector<4xf32>, !simt.ptr<global>
  }
  simt.return
}
