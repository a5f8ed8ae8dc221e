// RUN: cfc-opt --simt-to-nvvm --split-input-file --verify-diagnostics %s

simt.kernel @approximate(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  %x = simt.load %table : !simt.ptr<global> -> f32
  // expected-error@+1 {{'math.exp2' on 'f32' has no exact instruction on the GPU; simt.exp2 is the approximate one}}
  %0 = math.exp2 %x : f32
  // expected-error@+1 {{'math.log2' on 'f32' has no exact instruction on the GPU; simt.log2 is the approximate one}}
  %1 = math.log2 %x : f32
  // expected-error@+1 {{'math.rsqrt' on 'f32' has no exact instruction on the GPU; simt.rsqrt is the approximate one}}
  %2 = math.rsqrt %x : f32
  // expected-error@+1 {{'math.tanh' on 'f32' has no exact instruction on the GPU}}
  %3 = math.tanh %x : f32
  simt.return
}

// -----

simt.kernel @scopes(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 1024 : i64, ctas_per_sm = 1 : i32} {
  %shared = simt.shared_base
  %c0 = arith.constant 0 : i32
  // expected-error@+1 {{orders memory at scope 'gpu'; an mbarrier knows cta and cluster}}
  simt.mbarrier_arrive gpu %shared : !simt.ptr<shared>
  // expected-error@+1 {{orders memory at scope 'sys'; an mbarrier knows cta and cluster}}
  simt.mbarrier_wait sys %shared, %c0
  simt.return
}

// -----

simt.kernel @kinds(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  %x = arith.constant 1.0 : f32
  // expected-error@+1 {{'simt.atomic' op has no 'or' of 'f32'}}
  %0 = simt.atomic or relaxed gpu %table, %x : !simt.ptr<global>, f32
  // expected-error@+1 {{'simt.barrier' op needs an id from 0 to 15 and a multiple of 32 threads}}
  simt.barrier 16, 32
  // expected-error@+1 {{'simt.barrier' op needs an id from 0 to 15 and a multiple of 32 threads}}
  simt.barrier 1, 40
  simt.return
}

// -----

// expected-error@+1 {{needs a name of letters, digits, '_' and '$' that does not start with a digit: it becomes a name in PTX}}
simt.kernel @"7b.block"(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  simt.return
}

// -----

// expected-error@+1 {{must not be called 'cfc_shared'}}
simt.kernel @cfc_shared(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  simt.return
}

// -----

// An op that no pattern takes.
simt.kernel @foreign(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  // expected-error@+1 {{failed to legalize operation 'func.call'}}
  func.call @elsewhere() : () -> ()
  simt.return
}
func.func private @elsewhere()

// -----

simt.kernel @words(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
    attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  // expected-error@+1 {{takes 1 to 16 addresses and gives as many values, not 2 and 1}}
  %a = simt.await_words %workspace, %table : !simt.ptr<global>, !simt.ptr<global> -> vector<4xi32>
  simt.return
}
