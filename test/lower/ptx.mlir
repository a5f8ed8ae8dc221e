// What simt modules become in PTX, after LLVM's optimiser.
// RUN: split-file %s %t
// RUN: cfc-opt --emit-ptx %t/arithmetic.mlir -o /dev/null | FileCheck %t/arithmetic.mlir
// RUN: cfc-opt --emit-ptx %t/order.mlir -o /dev/null | FileCheck %t/order.mlir
// RUN: cfc-opt --emit-ptx %t/warp.mlir -o /dev/null | FileCheck %t/warp.mlir
// RUN: cfc-opt --emit-ptx %t/after.mlir -o /dev/null | FileCheck %t/after.mlir
// RUN: cfc-opt --emit-ptx %t/e4m3.mlir -o /dev/null > %t/e4m3.ptx && FileCheck %t/e4m3.mlir < %t/e4m3.ptx
// RUN: cfc-opt --simt-to-nvvm --emit-ptx %t/e4m3.mlir -o /dev/null | FileCheck %t/e4m3.mlir
// RUN: %if ptxas %{ %ptxas -arch=sm_90a %t/e4m3.ptx -o /dev/null %}
// RUN: cfc-opt --emit-ptx %t/maps.mlir -o /dev/null > %t/maps.ptx
// RUN: FileCheck %t/maps.mlir < %t/maps.ptx
// RUN: cfc-opt --simt-to-nvvm --emit-ptx %t/maps.mlir -o /dev/null | FileCheck %t/maps.mlir
// RUN: %if ptxas %{ %ptxas -arch=sm_90a %t/maps.ptx -o /dev/null %}
// RUN: cfc-opt --emit-ptx=llvm %t/arithmetic.mlir -o /dev/null | FileCheck --check-prefix=LLVM %t/arithmetic.mlir
// RUN: cfc-opt --simt-to-nvvm --emit-ptx %t/arithmetic.mlir -o /dev/null | FileCheck %t/arithmetic.mlir

//--- arithmetic.mlir
// LLVM: define ptx_kernel void @arithmetic
// The lowest version that has sm_90a, for the ptxas of CUDA 12.0.
// CHECK: .version 8.0
// CHECK: .target sm_90a
// CHECK: .visible .entry arithmetic(
// CHECK: .reqntid 64, 1, 1
// CHECK: .minnctapersm 2
// CHECK: .reqnctapercluster 1, 1, 1
simt.kernel @arithmetic(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 64 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 2 : i32} {
  %c2 = arith.constant 2 : i32
  %c4 = arith.constant 4 : i32
  %c8 = arith.constant 8 : i32
  %v = simt.load %table : !simt.ptr<global> -> vector<2xf32>
  %a = vector.extract %v[0] : f32 from vector<2xf32>
  %b = vector.extract %v[1] : f32 from vector<2xf32>
  // CHECK: mul.rn.f32 %[[M:r[0-9]+]],
  %m = arith.mulf %a, %b fastmath<contract> : f32
  // CHECK: add.rn.f32 %{{.*}}%[[M]]
  %s = arith.addf %m, %b fastmath<contract> : f32
  // CHECK: fma.rn.f32
  %f = math.fma %s, %a, %b : f32
  // CHECK: div.rn.f32
  %d = arith.divf %f, %a : f32
  // CHECK: sqrt.rn.f32
  %q = math.sqrt %d : f32
  // CHECK: max.NaN.f32
  %x = arith.maximumf %q, %b : f32
  // CHECK: max.f32
  %y = arith.maxnumf %x, %a : f32
  // CHECK: cvt.rn.f16.f32
  %h = arith.truncf %y : f32 to f16
  // CHECK: cvt.rn.bf16.f32
  %g = arith.truncf %y : f32 to bf16
  %w = vector.from_elements %q, %x : vector<2xf32>
  // CHECK-DAG: cvt.rn.f16x2.f32
  %p = arith.truncf %w : vector<2xf32> to vector<2xf16>
  // CHECK-DAG: cvt.rn.bf16x2.f32
  %r = arith.truncf %w : vector<2xf32> to vector<2xbf16>
  simt.store %h, %workspace : f16, !simt.ptr<global>
  %w2 = simt.offset %workspace, %c2 : !simt.ptr<global>, i32
  simt.store %g, %w2 : bf16, !simt.ptr<global>
  %w4 = simt.offset %workspace, %c4 : !simt.ptr<global>, i32
  simt.store %p, %w4 : vector<2xf16>, !simt.ptr<global>
  %w8 = simt.offset %workspace, %c8 : !simt.ptr<global>, i32
  simt.store %r, %w8 : vector<2xbf16>, !simt.ptr<global>
  // f16 and bf16 become f32 exactly.
  // CHECK-DAG: cvt.f32.f16
  // CHECK-DAG: {{cvt.f32.bf16|shl.b32|mov.b32}}
  %hx = simt.load %table : !simt.ptr<global> -> f16
  %t2 = simt.offset %table, %c2 : !simt.ptr<global>, i32
  %bx = simt.load %t2 : !simt.ptr<global> -> bf16
  %hf = arith.extf %hx : f16 to f32
  %bf = arith.extf %bx : bf16 to f32
  %sum = arith.addf %hf, %bf : f32
  simt.store %sum, %w4 : f32, !simt.ptr<global>
  simt.return
}

//--- order.mlir
// Nothing may pass what orders memory.
// CHECK: .visible .entry order(
// CHECK: .reqnctapercluster 2, 1, 1
simt.kernel @order(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 64 : i32, cluster = 2 : i32, shared_bytes = 1024 : i64, ctas_per_sm = 1 : i32} {
  %shared = simt.shared_base
  %one = arith.constant 1 : i32
  %bytes = arith.constant 16 : i32
  %remote = simt.map_rank %shared, %one
  // The same address is read before and after each step; no load may be dropped or moved.
  // CHECK: ld.global.b32
  %a0 = simt.load %table : !simt.ptr<global> -> i32
  // CHECK: griddepcontrol.wait;
  simt.grid_wait
  // CHECK: ld.global.b32
  %a1 = simt.load %table : !simt.ptr<global> -> i32
  // CHECK: ld.shared.b32
  %s0 = simt.load %shared : !simt.ptr<shared> -> i32
  // CHECK: mbarrier.try_wait.parity.acquire.cluster.shared{{.*}}.b64
  // CHECK: bra
  simt.mbarrier_wait cluster %shared, %one
  // CHECK: ld.shared.b32
  %s1 = simt.load %shared : !simt.ptr<shared> -> i32
  // CHECK: mbarrier.try_wait.parity.shared{{.*}}.b64
  // CHECK: bra
  simt.mbarrier_wait cta %shared, %one
  // CHECK: ld.shared.b32
  %s2 = simt.load %shared : !simt.ptr<shared> -> i32
  // CHECK: bar.sync 1, 64;
  simt.barrier 1, 64
  // CHECK: ld.shared.b32
  %s3 = simt.load %shared : !simt.ptr<shared> -> i32
  // CHECK: bar.warp.sync -1;
  simt.syncwarp
  // CHECK: ld.shared.b32
  %s4 = simt.load %shared : !simt.ptr<shared> -> i32
  // CHECK: st.shared::cluster.b32
  simt.store %s4, %remote : i32, !simt.ptr<cluster>
  // CHECK: fence.acq_rel.cluster;
  simt.fence cluster
  // CHECK: mbarrier.arrive.release.cluster.shared::cluster.b64
  simt.mbarrier_arrive cluster %remote : !simt.ptr<cluster>
  // CHECK: st.shared.b32
  simt.store %s3, %shared : i32, !simt.ptr<shared>
  // CHECK: fence.proxy.async.shared::cta;
  simt.fence_proxy_async
  // CHECK: cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
  simt.bulk_push %remote, %shared, %bytes, %remote
  // CHECK: st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [{{.*}}], {{.*}}, [{{.*}}];
  simt.store_async %s3, %remote, %remote : i32
  // CHECK: cp.async.bulk.global.shared::cta.bulk_group
  simt.bulk_store %workspace, %shared, %bytes : !simt.ptr<global>
  // CHECK: cp.async.bulk.commit_group;
  simt.bulk_commit
  // CHECK: cp.async.bulk.wait_group 0;
  simt.bulk_wait 0
  // CHECK: ld.global.b32
  %w = simt.load %workspace : !simt.ptr<global> -> i32
  // CHECK: red.release.gpu.global.add.u32
  %r = simt.atomic add release gpu %workspace, %w : !simt.ptr<global>, i32
  // CHECK: barrier.cluster.arrive{{(.release)?}}.aligned;
  // CHECK: barrier.cluster.wait{{(.acquire)?}}.aligned;
  simt.cluster_arrive
  simt.cluster_wait
  %x0 = arith.addi %a0, %a1 : i32
  %x1 = arith.addi %s0, %s1 : i32
  %x2 = arith.addi %x0, %x1 : i32
  %x3 = arith.addi %x2, %s2 : i32
  simt.store %x3, %table : i32, !simt.ptr<global>
  simt.return
}

//--- warp.mlir
// Only some lanes need the sum, all must take part in it.
// CHECK: .visible .entry warp(
simt.kernel @warp(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 1024 : i64, ctas_per_sm = 1 : i32} {
  %shared = simt.shared_base
  %zero = arith.constant 0.0 : f32
  %four = arith.constant 4 : i32
  %lane = simt.thread_id
  // CHECK-DAG: ldmatrix.sync.aligned.m8n8.x4.shared.b16
  %a:4 = simt.ldmatrix %shared : i32, i32, i32, i32
  // CHECK-DAG: ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16
  %b:2 = simt.ldmatrix trans %shared : i32, i32
  // CHECK: movmatrix.sync.aligned.m8n8.trans.b16
  %t = simt.movmatrix %b#0
  // CHECK: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
  %d:4 = simt.mma bf16 a(%a#0, %a#1, %a#2, %a#3) b(%b#0, %t) c(%zero, %zero, %zero, %zero)
  // CHECK: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
  %e:4 = simt.mma f16 a(%a#0, %a#1, %a#2, %a#3) b(%b#0, %b#1) c(%d#0, %d#1, %d#2, %d#3)
  // CHECK: bra
  %few = arith.cmpi ult, %lane, %four : i32
  scf.if %few {
    // CHECK: ex2.approx.ftz.f32
    %x = simt.exp2 %e#0
    // CHECK: lg2.approx.ftz.f32
    %l = simt.log2 %x
    // CHECK: rsqrt.approx.ftz.f32
    %q = simt.rsqrt %l
    // CHECK: st.global.b32
    simt.store %q, %table : f32, !simt.ptr<global>
  }
  simt.return
}

//--- after.mlir
// The optimiser does not know that the address of the arrival is the barrier's: it waits for the product.
// CHECK: .visible .entry after(
simt.kernel @after(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 2048 : i64, ctas_per_sm = 1 : i32} {
  %shared = simt.shared_base
  %kilobyte = arith.constant 1024 : i32
  %barrier = simt.offset %shared, %kilobyte : !simt.ptr<shared>, i32
  %zero = arith.constant 0.0 : f32
  // CHECK: ldmatrix.sync.aligned.m8n8.x4.shared.b16
  %a:4 = simt.ldmatrix %shared : i32, i32, i32, i32
  // CHECK: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
  // CHECK: %[[D:r[0-9]+]],
  %d:4 = simt.mma f16 a(%a#0, %a#1, %a#2, %a#3) b(%a#0, %a#1) c(%zero, %zero, %zero, %zero)
  // CHECK: mov.{{[a-z]}}32 %[[ROW:r[0-9]+]], %ctaid.y;
  // CHECK: and.b32 %[[NONE:r[0-9]+]], %[[ROW]], %[[D]];
  // CHECK: add.s32 %[[AT:r[0-9]+]], %{{.*}}%[[NONE]];
  // CHECK: mbarrier.arrive.{{.*}}[%[[AT]]{{.*}}];
  %at = simt.after %barrier, %d#0 : !simt.ptr<shared>, f32
  simt.mbarrier_arrive cta %at : !simt.ptr<shared>
  simt.return
}

//--- e4m3.mlir
// LLVM has them from 8.1 on. The upper one of two stands first.
// CHECK: .version 8.1
// CHECK: .visible .entry e4m3(
simt.kernel @e4m3(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  // CHECK: ld.global.v2.b32 {%[[LO:r[0-9]+]], %[[HI:r[0-9]+]]}
  %v = simt.load %table : !simt.ptr<global> -> vector<2xf32>
  %lo = vector.extract %v[0] : f32 from vector<2xf32>
  %hi = vector.extract %v[1] : f32 from vector<2xf32>
  // CHECK: cvt.rn.satfinite.e4m3x2.f32 %[[P:rs[0-9]+]], %[[HI]], %[[LO]];
  %p = simt.pack_e4m3 %lo, %hi
  // CHECK: cvt.rn.f16x2.e4m3x2 %{{r[0-9]+}}, %[[P]];
  %u = simt.unpack_e4m3 f16 %p
  simt.store %u, %workspace : i32, !simt.ptr<global>
  // CHECK: cvt.f32.f16
  // CHECK: cvt.rn.bf16x2.f32
  %b = simt.unpack_e4m3 bf16 %p
  simt.store %b, %table : i32, !simt.ptr<global>
  simt.return
}

//--- maps.mlir
// The fence of a tensor map came with 8.3.
// CHECK: .version 8.3
// CHECK: .visible .entry maps(
simt.kernel @maps(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 16384 : i64, ctas_per_sm = 1 : i32} {
  %shared = simt.shared_base
  %c128 = arith.constant 128 : i32
  %c8192 = arith.constant 8192 : i32
  %map = simt.offset %table, %c128 : !simt.ptr<global>, i32
  %barrier = simt.offset %shared, %c8192 : !simt.ptr<shared>, i32
  %x = simt.thread_id
  // CHECK: ld.global.b32 %[[BEFORE:r[0-9]+]],
  %before = simt.load %workspace : !simt.ptr<global> -> i32
  // CHECK: cvta.global.u64
  // CHECK: fence.proxy.tensormap::generic.acquire.gpu [{{%rd[0-9]+}}], 128;
  simt.tensor_map_acquire %map : !simt.ptr<global>
  // CHECK: cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{{%r[0-9]+}}], [{{%rd[0-9]+}}, {%[[BEFORE]], {{%r[0-9]+}}}], [{{%r[0-9]+}}];
  simt.tensor_load %shared, %map[%before, %x], %barrier : !simt.ptr<global>
  // CHECK: cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
  simt.tensor_load %shared, %map[%x, %before, %c128], %barrier : !simt.ptr<global>
  // CHECK: ld.global.b32
  %after = simt.load %workspace : !simt.ptr<global> -> i32
  simt.store %after, %table : i32, !simt.ptr<global>
  simt.return
}
