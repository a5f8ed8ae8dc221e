// Every operation prints as it was written, and the print parses to the same; so does the generic form.
// RUN: cfc-opt %s | FileCheck %s
// RUN: cfc-opt %s | cfc-opt | FileCheck %s
// RUN: cfc-opt %s --mlir-print-op-generic | cfc-opt | FileCheck %s

// CHECK-LABEL: attn.graph @block(%x: tensor<1x64xf16>, %gain: tensor<64xf32>,
// CHECK-SAME: %cache: !attn.kv_cache<heads = 2, dim = 16, bf16>,
// CHECK-SAME: %len: !attn.lengths<1, capacity = 128>) -> (tensor<1x64xf16>) {
attn.graph @block(%x: tensor<1x64xf16>, %gain: tensor<64xf32>, %w_q: tensor<64x64xf16>, %w_k: tensor<32x64xbf16>,
    %w_v: tensor<32x64xf16>, %w_o: tensor<64x64xf16>, %table: tensor<128x16xf32>,
    %cache: !attn.kv_cache<heads = 2, dim = 16, bf16>, %pos: tensor<1xi32>, %slot: tensor<1xi64>,
    %len: !attn.lengths<1, capacity = 128>) -> tensor<1x64xf16> {
  // CHECK-NEXT: %n = attn.rms_norm %x, %gain {eps = 1.000000e-05}
  // CHECK-NEXT: %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]{{$}}
  // CHECK-NEXT: %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  // CHECK-NEXT: %c = attn.kv_append %cache, %kr, %v at %slot{{$}}
  // CHECK-NEXT: %o = attn.attention %qr, %c, %len {scale = 2.500000e-01}
  // CHECK-NEXT: %y = attn.linear %o, [%w_o]{{$}}
  // CHECK-NEXT: %z = attn.add %x, %y{{$}}
  // CHECK-NEXT: attn.return %z{{$}}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {scale = 0.25}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}

// Biases, result groups, one rotated value, a second result of attention, whole numbers where fractions are possible.
// CHECK-LABEL: attn.graph @forms(
// CHECK-SAME: -> (tensor<1x64xf16> {attn.name = "o"}, tensor<1x4xf32>) attributes {test.note = "kept"} {
attn.graph @forms(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>, %b: tensor<64xbf16>,
    %cache: !attn.kv_cache<heads = 1, dim = 16, f16>, %pos: tensor<1xi32>, %len: !attn.lengths<1, capacity = 8>)
    -> (tensor<1x64xf16> {attn.name = "o"}, tensor<1x4xf32>) attributes {test.note = "kept"} {
  // CHECK-NEXT: %r:2 = attn.linear %x, [%w, %w] bias [%b, %b]{{$}}
  // CHECK-NEXT: %t = attn.rope_table {base = 1.000000e+04, dim = 16, positions = 100}
  // CHECK-NEXT: %u = attn.rope %r#1, %t at %pos {style = interleaved, test.mark, test.plan = 3 : i32}
  // CHECK-NEXT: %o, %lse = attn.attention %u, %cache, %len {scale = 1.000000e+00}
  // CHECK-NEXT: attn.return %o, %lse
  %r:2 = attn.linear %x, [%w, %w] bias [%b, %b]
  %t = attn.rope_table {base = 10000, dim = 16, positions = 100}
  %u = attn.rope %r#1, %t at %pos {style = interleaved, test.plan = 3 : i32, test.mark}
  %o, %lse = attn.attention %u, %cache, %len {scale = 1}
  attn.return %o, %lse
}

// A trailing type changes the element type; it prints only where it says something new.
// CHECK-LABEL: attn.graph @types(
attn.graph @types(%x: tensor<1x64xf16>, %w: tensor<32x64xf16>, %gain: tensor<32xf16>)
    -> (tensor<1x32xbf16>, tensor<8x4xbf16>) {
  // CHECK-NEXT: %a, %b = attn.linear %x, [%w, %w] : tensor<1x32xbf16>, tensor<1x32xf16>
  // CHECK-NEXT: %n = attn.rms_norm %b, %gain {eps = 1.000000e-05}{{$}}
  // CHECK-NEXT: %s = attn.add %a, %n {scale = 2.200000e-01}
  // CHECK-NEXT: %t = attn.rope_table {{{.*}}} : tensor<8x4xbf16>
  %a, %b = attn.linear %x, [%w, %w] : tensor<1x32xbf16>, tensor<1x32xf16>
  %n = attn.rms_norm %b, %gain {eps = 1.0e-5} : tensor<1x32xf16>
  %s = attn.add %a, %n {scale = 0.22}
  %t = attn.rope_table {base = 10000, dim = 4, positions = 8} : tensor<8x4xbf16>
  attn.return %s, %t
}

// A tensor's name is the argument's, unless it is given; a name that is no SSA name stays an attribute.
// CHECK-LABEL: attn.graph @names(%model.layers.0.weight: tensor<64x64xf16>,
// CHECK-SAME: %arg0: tensor<1x64xf16> {attn.name = "hidden-state"})
attn.graph @names(%w: tensor<64x64xf16> {attn.name = "model.layers.0.weight"},
    %x: tensor<1x64xf16> {attn.name = "hidden-state"}) -> tensor<1x64xf16> {
  // CHECK-NEXT: attn.linear %arg0, [%model.layers.0.weight]
  %y = attn.linear %x, [%w]
  attn.return %y
}

// Several requests: rows of the activations.
// CHECK-LABEL: attn.graph @batch(
attn.graph @batch(%q: tensor<3x64xf16>, %k: tensor<3x16xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>,
    %slot: tensor<3xi64>, %len: !attn.lengths<3, capacity = 8>) -> (tensor<3x64xf16>, tensor<3x4xf32>) {
  %c = attn.kv_append %cache, %k, %k at %slot
  %o, %lse = attn.attention %q, %c, %len {scale = 0.25}
  attn.return %o, %lse
}

// Pages, and heads of V of another size.
// CHECK-LABEL: attn.graph @pages(
// CHECK-SAME: %cache: !attn.kv_cache<heads = 1, dim = 16, v_dim = 24, page = 8, f16>
// CHECK-SAME: %other: !attn.kv_cache<heads = 1, dim = 16, page = 1, bf16>
attn.graph @pages(%q: tensor<3x64xf16>, %k: tensor<3x16xf16>, %v: tensor<3x24xf16>,
    %cache: !attn.kv_cache<heads = 1, dim = 16, v_dim = 24, page = 8, f16>,
    %other: !attn.kv_cache<heads = 1, dim = 16, page = 1, bf16>, %slot: tensor<3xi64>, %table: tensor<3x5xi32>,
    %len: !attn.lengths<3, capacity = 40>) -> (tensor<3x96xf16>, tensor<3x4xf32>, tensor<3x64xf16>) {
  // CHECK-NEXT: %c = attn.kv_append %cache, %k, %v at %slot{{$}}
  // CHECK-NEXT: %o, %lse = attn.attention %q, %c, %len pages %table {scale = 2.500000e-01}{{$}}
  // CHECK-NEXT: attn.attention %q, %other, %len pages %table {scale = 2.500000e-01}{{$}}
  %c = attn.kv_append %cache, %k, %v at %slot
  %o, %lse = attn.attention %q, %c, %len pages %table {scale = 0.25}
  %p = attn.attention %q, %other, %len pages %table {scale = 0.25}
  attn.return %o, %lse, %p
}

// Every other option of an operation.
// CHECK-LABEL: attn.graph @variants(
// CHECK-SAME: %cache: !attn.kv_cache<heads = 2, dim = 16, page = 4, f8E4M3FN>
attn.graph @variants(%x: tensor<1x64xf16>, %gain: tensor<16xf32>, %wide: tensor<64xbf16>, %bias: tensor<64xf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 16, page = 4, f8E4M3FN>, %k: tensor<1x32xf16>, %pos: tensor<1xi32>,
    %slot: tensor<1xi64>, %pages: tensor<1x3xi32>, %len: !attn.lengths<1, capacity = 8>, %sinks: tensor<4xbf16>,
    %ks: tensor<2xf32>, %vs: tensor<1xf32>, %slopes: tensor<4xf32>) -> (tensor<1x64xf16>, tensor<1x4xf32>) {
  // CHECK-NEXT: %a = attn.rms_norm %x, %gain {eps = {{[0-9.eE+-]+}}, offset = 1.000000e+00}
  // CHECK-NEXT: %b = attn.layer_norm %a {eps = 1.000000e-05}
  // CHECK-NEXT: %c = attn.layer_norm %b, %wide {eps = 1.000000e-05}
  // CHECK-NEXT: %d = attn.layer_norm %c, %wide, %bias {eps = 1.000000e-05}
  %a = attn.rms_norm %x, %gain {eps = 1.0e-6, offset = 1}
  %b = attn.layer_norm %a {eps = 1.0e-5}
  %c = attn.layer_norm %b, %wide {eps = 1.0e-5}
  %d = attn.layer_norm %c, %wide, %bias {eps = 1.0e-5}
  // CHECK-NEXT: %{{[a-z0-9]+}} = attn.rope_table {base = 1.000000e+04, dim = 8, factor = 2.000000e+00, positions = 4, scaling = linear}
  // CHECK-NEXT: %{{[a-z0-9]+}} = attn.rope_table {base = 5.000000e+05, dim = 8, factor = 8.000000e+00, high_freq_factor = 4.000000e+00,
  // CHECK-SAME: low_freq_factor = 1.000000e+00, original_positions = 8192, positions = 4, scaling = llama3}
  // CHECK-NEXT: %t = attn.rope_table {base = 1.500000e+05, dim = 8, factor = 3.200000e+01, original_positions = 4096,
  // CHECK-SAME: positions = 4, scaling = yarn, truncate = false}
  %linear = attn.rope_table {base = 10000, dim = 8, positions = 4, scaling = linear, factor = 2}
  %llama3 = attn.rope_table {base = 500000, dim = 8, positions = 4, scaling = llama3, factor = 8.0, original_positions = 8192,
    low_freq_factor = 1, high_freq_factor = 4}
  %t = attn.rope_table {base = 150000, dim = 8, positions = 4, scaling = yarn, factor = 32, original_positions = 4096,
    truncate = false}
  // CHECK-NEXT: %q, %kr = attn.rope %d, %k, %t at %pos {head_dim = 16, style = half_split}
  %q, %kr = attn.rope %d, %k, %t at %pos {style = half_split, head_dim = 16}
  // CHECK-NEXT: %e = attn.kv_append %cache, %kr, %kr at %slot scales %ks, %vs
  // CHECK-NEXT: %o, %lse = attn.attention %q, %e, %len pages %pages sinks %sinks scales %ks, %vs
  // CHECK-SAME: {scale = 2.500000e-01, softcap = 5.000000e+01, window = 3} bias(%head, %query, %key) {
  // CHECK-NEXT: %{{.*}} = attn.at %slopes[%head]
  // CHECK-NEXT: %{{.*}} = arith.subi %key, %query : index
  // CHECK: attn.yield %{{.*}}
  // CHECK-NEXT: }
  // CHECK-NEXT: attn.return %o, %lse
  %e = attn.kv_append %cache, %kr, %kr at %slot scales %ks, %vs
  %o, %lse = attn.attention %q, %e, %len pages %pages sinks %sinks scales %ks, %vs
      {scale = 0.25, window = 3, softcap = 50} bias(%h, %i, %j) {
    %slope = attn.at %slopes[%h]
    %distance = arith.subi %j, %i : index
    %narrow = arith.index_cast %distance : index to i32
    %f = arith.sitofp %narrow : i32 to f32
    %bias_of_score = arith.mulf %slope, %f : f32
    attn.yield %bias_of_score
  }
  attn.return %o, %lse
}

// Several query tokens a request, and a tree of them; of an append the same starts.
// CHECK-LABEL: attn.graph @queries(
attn.graph @queries(%q: tensor<6x64xf16>, %k: tensor<6x16xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, page = 4, f16>,
    %slot: tensor<6xi64>, %len: !attn.lengths<2, capacity = 40>, %pages: tensor<2x12xi32>, %starts: tensor<3xi32>, %mask: tensor<6xi64>,
    %sinks: tensor<4xf32>, %ks: tensor<1xf32>) -> (tensor<6x64xf16>, tensor<6x4xf32>) {
  // CHECK-NEXT: %c = attn.kv_append %cache, %k, %k at %slot queries %starts scales %ks, %ks{{$}}
  // CHECK-NEXT: %o, %lse = attn.attention %q, %c, %len pages %pages queries %starts mask %mask sinks %sinks scales %ks, %ks
  // CHECK-SAME: {scale = 2.500000e-01}{{$}}
  %c = attn.kv_append %cache, %k, %k at %slot queries %starts scales %ks, %ks
  %o, %lse = attn.attention %q, %c, %len pages %pages queries %starts mask %mask sinks %sinks scales %ks, %ks {scale = 0.25}
  attn.return %o, %lse
}
