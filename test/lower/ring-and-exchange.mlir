// A kernel with all that a fused one has: a ring of bulk copies between a producer and a consumer warp, mma,
// exchanges within a cluster by remote stores and by bulk pushes, and a last arriver that adds up.
// REQUIRES: ptxas
// RUN: cfc-opt --emit-ptx %s -o /dev/null > %t.ptx
// RUN: %ptxas -arch=sm_90a -O3 -v %t.ptx -o %t.cubin 2>&1 | FileCheck --check-prefix=PTXAS %s
// RUN: FileCheck %s < %t.ptx
//
// PTXAS: 0 bytes spill stores
// CHECK: .reqnctapercluster 2, 1, 1
// CHECK-DAG: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
// CHECK-DAG: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// CHECK-DAG: mapa.shared::cluster.u32
// CHECK-DAG: st.shared::cluster.v4.b32
// CHECK-DAG: mbarrier.arrive.release.cluster.shared::cluster.b64
// CHECK-DAG: cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
// CHECK-DAG: atom.acq_rel.gpu.global.add.u32
// CHECK-NOT: .local
//
// The table: 0 = tiles (f16, 16x16 of A then 8x16 of B), 1 = results (f32, [cta][3][128]), 2 = counters.
simt.kernel @probe(%table: !simt.ptr<global>, %ws: !simt.ptr<global>)
    attributes {threads = 64 : i32, cluster = 2 : i32, shared_bytes = 8192 : i64, ctas_per_sm = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c2 = arith.constant 2 : i32
  %c4 = arith.constant 4 : i32
  %c7 = arith.constant 7 : i32
  %c8 = arith.constant 8 : i32
  %c15 = arith.constant 15 : i32
  %c16 = arith.constant 16 : i32
  %c32 = arith.constant 32 : i32
  %c64 = arith.constant 64 : i32
  %c72 = arith.constant 72 : i32
  %c80 = arith.constant 80 : i32
  %c512 = arith.constant 512 : i32
  %c768 = arith.constant 768 : i32
  %c1536 = arith.constant 1536 : i32
  %f0 = arith.constant 0.0 : f32
  %T = arith.constant 37 : i32
  %sh = simt.shared_base
  %tid = simt.thread_id
  %rank = simt.cta_rank
  %cl = simt.cluster_id
  %ncl = simt.num_clusters
  %warp = arith.divui %tid, %c32 : i32
  %lane = arith.remui %tid, %c32 : i32
  %other = arith.subi %c1, %rank : i32
  %first = arith.cmpi eq, %tid, %c0 : i32
  %lane0 = arith.cmpi eq, %lane, %c0 : i32
  // barriers: full0 0, full1 16, empty0 8, empty1 24, exchange 32, push 40
  %o32 = arith.constant 32 : i32
  %o40 = arith.constant 40 : i32
  %o8 = arith.constant 8 : i32
  %o24 = arith.constant 24 : i32
  %bx = simt.offset %sh, %o32 : !simt.ptr<shared>, i32
  %bp = simt.offset %sh, %o40 : !simt.ptr<shared>, i32
  scf.if %first {
    %b1 = simt.offset %sh, %c8 : !simt.ptr<shared>, i32
    %b2 = simt.offset %sh, %c16 : !simt.ptr<shared>, i32
    %b3 = simt.offset %sh, %o24 : !simt.ptr<shared>, i32
    simt.mbarrier_init %sh, %c1
    simt.mbarrier_init %b1, %c1
    simt.mbarrier_init %b2, %c1
    simt.mbarrier_init %b3, %c1
    simt.mbarrier_init %bx, %c32
    simt.mbarrier_init %bp, %c1
    simt.fence_mbarrier_init
    simt.mbarrier_arrive_expect_tx %bp, %c512
  }
  simt.cluster_arrive
  simt.cluster_wait
  %p_tiles_a = simt.offset %table, %c64 : !simt.ptr<global>, i32
  %p_out_a = simt.offset %table, %c72 : !simt.ptr<global>, i32
  %p_int_a = simt.offset %table, %c80 : !simt.ptr<global>, i32
  %tiles = simt.load_ptr %p_tiles_a : !simt.ptr<global> -> !simt.ptr<global>
  %out = simt.load_ptr %p_out_a : !simt.ptr<global> -> !simt.ptr<global>
  %ints = simt.load_ptr %p_int_a : !simt.ptr<global> -> !simt.ptr<global>
  %cta2 = arith.muli %cl, %c2 : i32
  %cta = arith.addi %cta2, %rank : i32
  %isp = arith.cmpi eq, %warp, %c1 : i32
  scf.if %isp {
    scf.if %lane0 {
      scf.for %i = %c0 to %T step %c1 : i32 {
        %slot = arith.andi %i, %c1 : i32
        %use = arith.shrui %i, %c1 : i32
        %par = arith.andi %use, %c1 : i32
        %epar = arith.xori %par, %c1 : i32
        %bo = arith.muli %slot, %c16 : i32
        %full = simt.offset %sh, %bo : !simt.ptr<shared>, i32
        %empty = simt.offset %full, %c8 : !simt.ptr<shared>, i32
        %so = arith.muli %slot, %c768 : i32
        %so2 = arith.addi %so, %c512 : i32
        %dst = simt.offset %sh, %so2 : !simt.ptr<shared>, i32
        simt.mbarrier_wait cta %empty, %epar
        simt.mbarrier_arrive_expect_tx %full, %c768
        %ti = arith.muli %cta, %T : i32
        %tj = arith.addi %ti, %i : i32
        %tb = arith.muli %tj, %c768 : i32
        %src = simt.offset %tiles, %tb : !simt.ptr<global>, i32
        simt.bulk_load %dst, %src, %c768, %full : !simt.ptr<global>
      }
    }
  } else {
    %lr = arith.andi %lane, %c15 : i32
    %lh = arith.shrui %lane, %c4 : i32
    %ar = arith.muli %lr, %c32 : i32
    %ah = arith.muli %lh, %c16 : i32
    %ao = arith.addi %ar, %ah : i32
    %br0 = arith.andi %lane, %c7 : i32
    %br1 = arith.shrui %lr, %c2 : i32
    %br2 = arith.shrui %br1, %c1 : i32
    %br = arith.muli %br0, %c32 : i32
    %bh = arith.muli %br2, %c16 : i32
    %bo2 = arith.addi %br, %bh : i32
    %bo3 = arith.addi %bo2, %c512 : i32
    %acc:4 = scf.for %i = %c0 to %T step %c1 iter_args(%x0 = %f0, %x1 = %f0, %x2 = %f0, %x3 = %f0) -> (f32, f32, f32, f32) : i32 {
      %slot = arith.andi %i, %c1 : i32
      %use = arith.shrui %i, %c1 : i32
      %par = arith.andi %use, %c1 : i32
      %bo = arith.muli %slot, %c16 : i32
      %full = simt.offset %sh, %bo : !simt.ptr<shared>, i32
      %empty = simt.offset %full, %c8 : !simt.ptr<shared>, i32
      %so = arith.muli %slot, %c768 : i32
      %so2 = arith.addi %so, %c512 : i32
      %dst = simt.offset %sh, %so2 : !simt.ptr<shared>, i32
      simt.mbarrier_wait cta %full, %par
      %pa = simt.offset %dst, %ao : !simt.ptr<shared>, i32
      %pb = simt.offset %dst, %bo3 : !simt.ptr<shared>, i32
      %a:4 = simt.ldmatrix %pa : i32, i32, i32, i32
      %b:2 = simt.ldmatrix %pb : i32, i32
      %d:4 = simt.mma f16 a(%a#0, %a#1, %a#2, %a#3) b(%b#0, %b#1) c(%x0, %x1, %x2, %x3)
      simt.syncwarp
      scf.if %lane0 {
        simt.mbarrier_arrive cta %empty : !simt.ptr<shared>
      }
      scf.yield %d#0, %d#1, %d#2, %d#3 : f32, f32, f32, f32
    }
    // remote stores and arrives
    %v = vector.from_elements %acc#0, %acc#1, %acc#2, %acc#3 : vector<4xf32>
    %l16 = arith.muli %lane, %c16 : i32
    %recv = arith.constant 4096 : i32
    %ro = arith.addi %recv, %l16 : i32
    %mine = simt.offset %sh, %ro : !simt.ptr<shared>, i32
    %peer = simt.map_rank %mine, %other
    simt.store %v, %peer : vector<4xf32>, !simt.ptr<cluster>
    %pbx = simt.map_rank %bx, %other
    simt.mbarrier_arrive cluster %pbx : !simt.ptr<cluster>
    simt.mbarrier_wait cluster %bx, %c0
    %w = simt.load %mine : !simt.ptr<shared> -> vector<4xf32>
    %sum = arith.addf %v, %w : vector<4xf32>
    %ob0 = arith.muli %cta, %c1536 : i32
    %ob = arith.addi %ob0, %l16 : i32
    %q = simt.offset %out, %ob : !simt.ptr<global>, i32
    simt.store %sum, %q : vector<4xf32>, !simt.ptr<global>
    // bulk push: exp2 of the accumulators after a shuffle
    %s0 = simt.shuffle xor %acc#0, %c1 : f32
    %s1 = simt.shuffle idx %acc#1, %c7 : f32
    %e0 = simt.exp2 %s0
    %t = simt.movmatrix %lane
    %tf = arith.uitofp %t : i32 to f32
    %ab = math.absf %acc#2 : f32
    %ab1 = arith.addf %ab, %e0 : f32
    %rs = simt.rsqrt %ab1
    %v2 = vector.from_elements %e0, %s1, %tf, %rs : vector<4xf32>
    %send = arith.constant 5120 : i32
    %land = arith.constant 6144 : i32
    %sendp = simt.offset %sh, %send : !simt.ptr<shared>, i32
    %sendl = simt.offset %sendp, %l16 : !simt.ptr<shared>, i32
    simt.store %v2, %sendl : vector<4xf32>, !simt.ptr<shared>
    simt.fence_proxy_async
    simt.syncwarp
    %landp = simt.offset %sh, %land : !simt.ptr<shared>, i32
    scf.if %lane0 {
      %lp = simt.map_rank %landp, %other
      %pbp = simt.map_rank %bp, %other
      simt.bulk_push %lp, %sendp, %c512, %pbp
    }
    simt.mbarrier_wait cluster %bp, %c0
    // what came in goes to global by a bulk store
    scf.if %lane0 {
      %o512 = arith.addi %ob0, %c512 : i32
      %dstg = simt.offset %out, %o512 : !simt.ptr<global>, i32
      simt.bulk_store %dstg, %landp, %c512 : !simt.ptr<global>
      simt.bulk_commit
      simt.bulk_wait 0
      simt.fence gpu
      // last arriver adds everything up
      %old = simt.atomic add acq_rel gpu %ints, %c1 : !simt.ptr<global>, i32
      %p4 = simt.offset %ints, %c4 : !simt.ptr<global>, i32
      %m = simt.atomic max relaxed gpu %p4, %cta : !simt.ptr<global>, i32
      %p8 = simt.offset %ints, %c8 : !simt.ptr<global>, i32
      %bit = arith.shli %c1, %cta : i32
      %r = simt.atomic or relaxed gpu %p8, %bit : !simt.ptr<global>, i32
      %p16 = simt.offset %ints, %c16 : !simt.ptr<global>, i32
      %fm = simt.atomic max relaxed gpu %p16, %acc#0 : !simt.ptr<global>, f32
      %n2 = arith.muli %ncl, %c2 : i32
      %lastid = arith.subi %n2, %c1 : i32
      %islast = arith.cmpi eq, %old, %lastid : i32
      scf.if %islast {
        %tot = scf.for %k = %c0 to %n2 step %c1 iter_args(%a = %f0) -> (f32) : i32 {
          %ko = arith.muli %k, %c1536 : i32
          %ko2 = arith.addi %ko, %c512 : i32
          %kp = simt.offset %out, %ko2 : !simt.ptr<global>, i32
          %x = simt.load %kp : !simt.ptr<global> -> f32
          %y = arith.addf %a, %x : f32
          scf.yield %y : f32
        }
        %p12 = arith.constant 12 : i32
        %pt = simt.offset %ints, %p12 : !simt.ptr<global>, i32
        simt.store %tot, %pt : f32, !simt.ptr<global>
      }
    }
  }
  simt.cluster_arrive
  simt.cluster_wait
  simt.return
}
