// RUN: cfc-opt --simt-to-nvvm --split-input-file %s | FileCheck %s

// CHECK-LABEL: llvm.mlir.global external @cfc_shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
// CHECK: llvm.func @kernel(%arg0: !llvm.ptr<1>, %arg1: !llvm.ptr<1>) attributes {
// CHECK-SAME: nvvm.cluster_dim = array<i32: 4, 1, 1>
// CHECK-SAME: nvvm.kernel
// CHECK-SAME: nvvm.minctasm = 2 : i32
// CHECK-SAME: nvvm.reqntid = array<i32: 160, 1, 1>
simt.kernel @kernel(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 160 : i32, cluster = 4 : i32, shared_bytes = 4096 : i64, ctas_per_sm = 2 : i32} {
  // CHECK: llvm.mlir.addressof @cfc_shared : !llvm.ptr<3>
  %shared = simt.shared_base
  // CHECK: nvvm.read.ptx.sreg.tid.x : i32
  %thread = simt.thread_id
  // CHECK: nvvm.read.ptx.sreg.cluster.ctarank : i32
  %rank = simt.cta_rank
  // CHECK: nvvm.read.ptx.sreg.clusterid.x : i32
  %cluster = simt.cluster_id
  // CHECK: nvvm.read.ptx.sreg.nclusterid.x : i32
  %clusters = simt.num_clusters
  // CHECK: llvm.getelementptr %{{.*}}[%{{.*}}] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
  %mine = simt.offset %shared, %thread : !simt.ptr<shared>, i32
  %far = arith.constant 8589934592 : i64
  // CHECK: llvm.getelementptr %arg0[%{{.*}}] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
  %there = simt.offset %table, %far : !simt.ptr<global>, i64
  // CHECK: nvvm.mapa %{{.*}}, %{{.*}} : !llvm.ptr<3> -> !llvm.ptr<7>
  %peer = simt.map_rank %shared, %rank
  // CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
  %row = simt.load %there : !simt.ptr<global> -> vector<4xi32>
  // CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<8xf32>
  %wide = simt.load %shared : !simt.ptr<shared> -> vector<8xf32>
  // CHECK: llvm.load %{{.*}} {alignment = 2 : i64} : !llvm.ptr<7> -> bf16
  %half = simt.load %peer : !simt.ptr<cluster> -> bf16
  // CHECK: llvm.store %{{.*}}, %{{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<7>
  simt.store %row, %peer : vector<4xi32>, !simt.ptr<cluster>
  // CHECK: llvm.store %{{.*}}, %arg1 {alignment = 2 : i64} : bf16, !llvm.ptr<1>
  simt.store %half, %workspace : bf16, !simt.ptr<global>
  // CHECK: llvm.load %arg0 {alignment = 8 : i64} : !llvm.ptr<1> -> i64
  // CHECK: llvm.inttoptr %{{.*}} : i64 to !llvm.ptr<1>
  %x = simt.load_ptr %table : !simt.ptr<global> -> !simt.ptr<global>
  // CHECK: llvm.load %{{.*}} {alignment = 1 : i64} : !llvm.ptr<1> -> i8
  %byte = simt.load %x : !simt.ptr<global> -> i8
  simt.store %byte, %x : i8, !simt.ptr<global>
  simt.store %wide, %x : vector<8xf32>, !simt.ptr<global>
  simt.return
}

// -----

// No shared memory, none declared.
// CHECK-NOT: llvm.mlir.global
// CHECK-LABEL: llvm.func @order
simt.kernel @order(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  // CHECK: llvm.fence syncscope("block") acq_rel
  simt.fence cta
  // CHECK: llvm.fence syncscope("cluster") acq_rel
  simt.fence cluster
  // CHECK: llvm.fence syncscope("device") acq_rel
  simt.fence gpu
  // CHECK: llvm.fence acq_rel
  simt.fence sys
  // CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
  simt.fence_proxy_async
  // CHECK: nvvm.fence.mbarrier.init
  simt.fence_mbarrier_init
  // CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %{{.*}}
  simt.barrier 3, 128
  // CHECK: nvvm.bar.warp.sync %{{.*}} : i32
  simt.syncwarp
  // CHECK: nvvm.cluster.arrive {aligned}
  simt.cluster_arrive
  // CHECK: nvvm.cluster.wait {aligned}
  simt.cluster_wait
  // CHECK: llvm.inline_asm has_side_effects asm_dialect = att "griddepcontrol.wait;", "~{memory}"
  simt.grid_wait
  // CHECK: llvm.inline_asm has_side_effects asm_dialect = att "griddepcontrol.launch_dependents;", "~{memory}"
  simt.grid_launch
  // CHECK: "{ .reg .pred %more; .reg .u32 %seen, %last;
  // CHECK-SAME: red.release.gpu.global.inc.u32 [$0], %last;
  // CHECK-SAME: ASK: ld.acquire.gpu.global.u32 %seen, [$0];
  // CHECK-SAME: red.relaxed.gpu.global.inc.u32 [$0], %last; }", "l,r,~{memory}"
  %ctas = simt.num_clusters
  simt.grid_barrier %workspace, %ctas : !simt.ptr<global>
  // CHECK: llvm.intr.trap
  simt.trap
  simt.return
}

// -----

// CHECK-LABEL: llvm.func @mbarriers
simt.kernel @mbarriers(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 2 : i32, shared_bytes = 1024 : i64, ctas_per_sm = 1 : i32} {
  %shared = simt.shared_base
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %remote = simt.map_rank %shared, %one
  // CHECK: nvvm.mbarrier.init %{{.*}}, %{{.*}} : !llvm.ptr<3>, i32
  simt.mbarrier_init %shared, %one
  // CHECK: nvvm.mbarrier.arrive %{{.*}} : !llvm.ptr<3>
  simt.mbarrier_arrive cta %shared : !simt.ptr<shared>
  // CHECK: nvvm.mbarrier.arrive %{{.*}} {scope = #nvvm.mem_scope<cluster>} : !llvm.ptr<7>
  simt.mbarrier_arrive cluster %remote : !simt.ptr<cluster>
  // CHECK: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %{{.*}} : !llvm.ptr<3>, i32
  simt.mbarrier_arrive_expect_tx %shared, %bytes
  // CHECK: llvm.br ^[[ASK:.*]]
  // CHECK: ^[[ASK]]:
  // CHECK: %[[DONE:.*]] = nvvm.mbarrier.try_wait %{{.*}}, %{{.*}} {scope = #nvvm.mem_scope<cluster>} : !llvm.ptr<3>, i32 -> i1
  // CHECK: llvm.cond_br %[[DONE]], ^[[REST:.*]], ^[[ASK]]
  // CHECK: ^[[REST]]:
  simt.mbarrier_wait cluster %shared, %one
  // CHECK: "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];", "r,l,r,r,~{memory}"
  simt.bulk_load %shared, %table, %bytes, %shared : !simt.ptr<global>
  // CHECK: createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;
  // CHECK-SAME: complete_tx::bytes.L2::cache_hint [$0], [$1], $2, [$3], %policy; }", "r,l,r,r,~{memory}"
  simt.bulk_load %shared, %table, %bytes, %shared once : !simt.ptr<global>
  // CHECK: cp.async.bulk.prefetch.L2.global.L2::cache_hint [$0], $1, %policy; }", "l,r,~{memory}"
  simt.prefetch %table, %bytes : !simt.ptr<global>
  // CHECK: "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];", "r,r,r,r,~{memory}"
  simt.bulk_push %remote, %shared, %bytes, %remote
  %two = simt.load %shared : !simt.ptr<shared> -> vector<2xi32>
  %four = simt.load %shared : !simt.ptr<shared> -> vector<4xi32>
  // CHECK: "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [$0], $2, [$1];", "r,r,r,~{memory}"
  simt.store_async %bytes, %remote, %remote : i32
  // CHECK: "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [$0], {$2, $3}, [$1];", "r,r,r,r,~{memory}"
  simt.store_async %two, %remote, %remote : vector<2xi32>
  // CHECK: "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [$0], {$2, $3, $4, $5}, [$1];", "r,r,r,r,r,r,~{memory}"
  simt.store_async %four, %remote, %remote : vector<4xi32>
  // CHECK: "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;", "l,r,r,~{memory}"
  simt.bulk_store %table, %shared, %bytes : !simt.ptr<global>
  // CHECK: nvvm.cp.async.bulk.commit.group
  simt.bulk_commit
  // CHECK: nvvm.cp.async.bulk.wait_group 1
  simt.bulk_wait 1
  simt.return
}

// -----

// CHECK-LABEL: llvm.func @tensor_loads
simt.kernel @tensor_loads(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 1024 : i64, ctas_per_sm = 1 : i32} {
  %shared = simt.shared_base
  %x = simt.thread_id
  // CHECK: %[[MAP:.*]] = llvm.addrspacecast %{{.*}} : !llvm.ptr<1> to !llvm.ptr
  // CHECK: "fence.proxy.tensormap::generic.acquire.gpu [$0], 128;", "l,~{memory}" %[[MAP]]
  simt.tensor_map_acquire %table : !simt.ptr<global>
  // CHECK: "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1, {$3, $4}], [$2];", "r,l,r,r,r,~{memory}"
  simt.tensor_load %shared, %table[%x, %x], %shared : !simt.ptr<global>
  // CHECK: "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1, {$3, $4, $5}], [$2];", "r,l,r,r,r,r,~{memory}"
  simt.tensor_load %shared, %table[%x, %x, %x], %shared : !simt.ptr<global>
  // CHECK: complete_tx::bytes.L2::cache_hint [$0], [$1, {$3, $4}], [$2], %policy; }", "r,l,r,r,r,~{memory}"
  simt.tensor_load %shared, %table[%x, %x], %shared once : !simt.ptr<global>
  simt.return
}

// -----

// CHECK-LABEL: llvm.func @atomics
simt.kernel @atomics(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 2 : i32, shared_bytes = 1024 : i64, ctas_per_sm = 1 : i32} {
  %shared = simt.shared_base
  %one = arith.constant 1 : i32
  %long = arith.constant 1 : i64
  %float = arith.constant 1.0 : f32
  %remote = simt.map_rank %shared, %one
  // CHECK: "red.release.gpu.global.add.u32 [$0], $1;", "l,r,~{memory}"
  %0 = simt.atomic add release gpu %table, %one : !simt.ptr<global>, i32
  // CHECK: "red.relaxed.cluster.shared::cluster.add.f32 [$0], $1;", "r,f,~{memory}"
  %1 = simt.atomic add relaxed cluster %remote, %float : !simt.ptr<cluster>, f32
  // An acquire needs a result to wait for.
  // CHECK: "atom.acq_rel.gpu.global.add.u64 $0, [$1], $2;", "=l,l,l,~{memory}"
  %2 = simt.atomic add acq_rel gpu %table, %long : !simt.ptr<global>, i64
  // CHECK: "atom.acquire.sys.global.max.s32 $0, [$1], $2;", "=r,l,r,~{memory}"
  %3 = simt.atomic max acquire sys %table, %one : !simt.ptr<global>, i32
  // CHECK: "atom.relaxed.cta.shared.or.b32 $0, [$1], $2;", "=r,r,r,~{memory}"
  %4 = simt.atomic or relaxed cta %shared, %3 : !simt.ptr<shared>, i32
  // CHECK: "atom.relaxed.gpu.global.exch.b32 $0, [$1], $2;", "=r,l,r,~{memory}"
  %5 = simt.atomic exch relaxed gpu %table, %4 : !simt.ptr<global>, i32
  // CHECK: llvm.atomicrmw fmax %{{.*}}, %{{.*}} syncscope("device") acq_rel : !llvm.ptr<1>, f32
  %6 = simt.atomic max acq_rel gpu %table, %float : !simt.ptr<global>, f32
  simt.return
}

// -----

// CHECK-LABEL: llvm.func @warp
simt.kernel @warp(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 1024 : i64, ctas_per_sm = 1 : i32} {
  %shared = simt.shared_base
  %one = arith.constant 1 : i32
  %zero = arith.constant 0.0 : f32
  // CHECK: nvvm.shfl.sync bfly %{{.*}} : f32 -> f32
  %s0 = simt.shuffle xor %zero, %one : f32
  // CHECK: nvvm.shfl.sync idx %{{.*}} : i32 -> i32
  %s1 = simt.shuffle idx %one, %one : i32
  // CHECK: nvvm.ldmatrix %{{.*}} {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, num = 4 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>}
  %a:4 = simt.ldmatrix %shared : i32, i32, i32, i32
  // CHECK: nvvm.ldmatrix %{{.*}} layout = #nvvm.mma_layout<col>, num = 2 : i32
  %b:2 = simt.ldmatrix trans %shared : i32, i32
  // CHECK: nvvm.ldmatrix %{{.*}} num = 1 : i32, {{.*}} : (!llvm.ptr<3>) -> i32
  %c = simt.ldmatrix %shared : i32
  // CHECK: "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "=r,r,~{memory}"
  %t = simt.movmatrix %c
  // CHECK: nvvm.mma.sync A[{{.*}}] B[{{.*}}] C[{{.*}}] {{.*}} : (vector<2xf16>, vector<2xf16>, f32)
  %d:4 = simt.mma f16 a(%a#0, %a#1, %a#2, %a#3) b(%b#0, %b#1) c(%zero, %zero, %zero, %zero)
  // CHECK: nvvm.mma.sync A[{{.*}}] B[{{.*}}] C[{{.*}}] {{.*}}multiplicandAPtxType = #nvvm.mma_type<bf16>{{.*}} : (i32, i32, f32)
  %e:4 = simt.mma bf16 a(%a#0, %a#1, %a#2, %a#3) b(%t, %s1) c(%d#0, %d#1, %d#2, %d#3)
  // CHECK: %[[X:.*]] = llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f32"
  %x = simt.exp2 %s0
  // CHECK: %[[Y:.*]] = llvm.call_intrinsic "llvm.nvvm.lg2.approx.ftz.f"
  %y = simt.log2 %x
  // CHECK: llvm.call_intrinsic "llvm.nvvm.ff.to.e4m3x2.rn"(%[[Y]], %[[X]]) : (f32, f32) -> i16
  %both = simt.pack_e4m3 %x, %y
  // CHECK: llvm.call_intrinsic "llvm.nvvm.e4m3x2.to.f16x2.rn"
  // CHECK: llvm.call_intrinsic "llvm.nvvm.ff2bf16x2.rn"(%{{.*}}, %{{.*}}) : (f32, f32) -> vector<2xbf16>
  %brains = simt.unpack_e4m3 bf16 %both
  // CHECK: llvm.call_intrinsic "llvm.nvvm.e4m3x2.to.f16x2.rn"(%{{.*}}) : (i16) -> vector<2xf16>
  // CHECK: llvm.bitcast %{{.*}} : vector<2xf16> to i32
  %halves = simt.unpack_e4m3 f16 %both
  // CHECK: llvm.call_intrinsic "llvm.nvvm.rsqrt.approx.ftz.f"
  %z = simt.rsqrt %y
  simt.store %z, %shared : f32, !simt.ptr<shared>
  simt.store %e#0, %shared : f32, !simt.ptr<shared>
  simt.return
}

// -----

// Fast-math flags are dropped; only a written fma is one.
// CHECK-LABEL: llvm.func @arithmetic
simt.kernel @arithmetic(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  // CHECK-NOT: fastmath
  %v = simt.load %table : !simt.ptr<global> -> vector<2xf32>
  // CHECK: llvm.extractelement
  %a = vector.extract %v[0] : f32 from vector<2xf32>
  %b = vector.extract %v[1] : f32 from vector<2xf32>
  // CHECK: llvm.fmul %{{.*}}, %{{.*}} : f32
  %m = arith.mulf %a, %b fastmath<contract> : f32
  // CHECK: llvm.fadd %{{.*}}, %{{.*}} : f32
  %s = arith.addf %m, %a fastmath<fast> : f32
  // CHECK: llvm.intr.fma
  %f = math.fma %s, %a, %b : f32
  // CHECK: llvm.insertelement
  %w = vector.from_elements %s, %f : vector<2xf32>
  // CHECK: llvm.fptrunc %{{.*}} : vector<2xf32> to vector<2xbf16>
  %h = arith.truncf %w : vector<2xf32> to vector<2xbf16>
  // CHECK: llvm.bitcast %{{.*}} : vector<2xbf16> to vector<1xi32>
  %i = vector.bitcast %h : vector<2xbf16> to vector<1xi32>
  %j = vector.extract %i[0] : i32 from vector<1xi32>
  simt.store %j, %table : i32, !simt.ptr<global>
  simt.return
}

// -----

// Structured control flow carries pointers and becomes branches.
// CHECK-LABEL: llvm.func @loops
// CHECK-NOT: scf
// CHECK: llvm.br ^{{.*}}(%{{.*}}, %arg0 : i32, !llvm.ptr<1>)
// CHECK: llvm.cond_br
// CHECK: llvm.return
simt.kernel @loops(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %n = simt.load %table : !simt.ptr<global> -> i32
  %end = scf.for %i = %c0 to %n step %c1 iter_args(%p = %table) -> (!simt.ptr<global>) : i32 {
    %next = simt.offset %p, %i : !simt.ptr<global>, i32
    scf.yield %next : !simt.ptr<global>
  }
  %is = arith.cmpi eq, %n, %c1 : i32
  scf.if %is {
    simt.store %n, %end : i32, !simt.ptr<global>
  }
  simt.return
}

// -----

// Vectors are taken apart and put together; divisions that LLVM lacks are expanded.
// CHECK-LABEL: llvm.func @vectors
simt.kernel @vectors(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  %v = simt.load %table : !simt.ptr<global> -> vector<4xf32>
  %i = arith.constant 2 : index
  // CHECK: llvm.extractelement %{{.*}}[%{{.*}} : i64] : vector<4xf32>
  %x = vector.extract %v[%i] : f32 from vector<4xf32>
  // CHECK-COUNT-4: llvm.extractelement %{{.*}}[%{{.*}} : i32] : vector<4xf32>
  %e:4 = vector.to_elements %v : vector<4xf32>
  // CHECK: llvm.insertelement %{{.*}}, %{{.*}}[%{{.*}} : i64] : vector<4xf32>
  %w = vector.insert %e#3, %v[0] : f32 into vector<4xf32>
  // CHECK-COUNT-4: llvm.insertelement %{{.*}}, %{{.*}}[%{{.*}} : i32] : vector<4xf32>
  %b = vector.broadcast %x : f32 to vector<4xf32>
  // CHECK: llvm.fadd %{{.*}}, %{{.*}} : vector<4xf32>
  %s = arith.addf %w, %b : vector<4xf32>
  simt.store %s, %table : vector<4xf32>, !simt.ptr<global>
  %n = simt.load %workspace : !simt.ptr<global> -> i32
  // CHECK: llvm.udiv
  // CHECK: llvm.select
  %d = arith.ceildivui %n, %n : i32
  simt.store %d, %workspace : i32, !simt.ptr<global>
  simt.return
}

// -----

// The address is made of all values, and is the base: grids have one row of blocks.
// CHECK-LABEL: llvm.func @after
simt.kernel @after(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 1024 : i64, ctas_per_sm = 1 : i32} {
  %shared = simt.shared_base
  %word = simt.load %table : !simt.ptr<global> -> i32
  %sum = simt.load %workspace : !simt.ptr<global> -> f32
  // CHECK: %[[BITS:.*]] = llvm.bitcast %{{.*}} : f32 to i32
  // CHECK: %[[ALL:.*]] = llvm.or %{{.*}}, %[[BITS]] : i32
  // CHECK: %[[ROW:.*]] = nvvm.read.ptx.sreg.ctaid.y : i32
  // CHECK: %[[ZERO:.*]] = llvm.and %[[ALL]], %[[ROW]] : i32
  // CHECK: %[[AT:.*]] = llvm.getelementptr %{{.*}}[%[[ZERO]]] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
  %barrier = simt.after %shared, %word, %sum : !simt.ptr<shared>, i32, f32
  // CHECK: nvvm.mbarrier.arrive %[[AT]] : !llvm.ptr<3>
  simt.mbarrier_arrive cta %barrier : !simt.ptr<shared>
  simt.return
}

// -----

// All loads come before the first is looked at, and only what is not there is loaded again.
// CHECK-LABEL: llvm.func @words
simt.kernel @words(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  %v = simt.load %table : !simt.ptr<global> -> vector<4xi32>
  // CHECK: "st.relaxed.gpu.global.v4.b32 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,~{memory}"
  simt.store_relaxed %v, %workspace : vector<4xi32>, !simt.ptr<global>
  // CHECK: "{ .reg .pred %there; .reg .u32 %low;
  // CHECK-SAME: ld.relaxed.gpu.global.v4.b32 {$0, $1, $2, $3}, [$8];
  // CHECK-SAME: ld.relaxed.gpu.global.v4.b32 {$4, $5, $6, $7}, [$9];
  // CHECK-SAME: ASK0: min.u32 %low, $0, $1;
  // CHECK-SAME: setp.ne.u32 %there, %low, 0;
  // CHECK-SAME: @%there bra END0;
  // CHECK-SAME: ld.relaxed.gpu.global.v4.b32 {$0, $1, $2, $3}, [$8];
  // CHECK-SAME: bra ASK0;
  // CHECK-SAME: ASK1: min.u32 %low, $4, $5;
  // CHECK-SAME: END1:
  // CHECK-SAME: "=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,l,l,~{memory}"
  %a, %b = simt.await_words %workspace, %table : !simt.ptr<global>, !simt.ptr<global> -> vector<4xi32>, vector<4xi32>
  simt.store %a, %table : vector<4xi32>, !simt.ptr<global>
  simt.store %b, %table : vector<4xi32>, !simt.ptr<global>
  simt.return
}
