// Sizes, types and numbers that do not fit: each error is at its operation and says what would fit.
// RUN: cfc-opt %s -verify-diagnostics -split-input-file

attn.graph @norm(%x: tensor<1x64xf16>, %gain: tensor<48xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%gain has 48 elements; a row of %x has 64}}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  attn.return %n
}
// -----
attn.graph @eps_zero(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a finite eps above 0, not 0.000000e+00}}
  %n = attn.rms_norm %x, %gain {eps = 0.0}
  attn.return %n
}
// -----
attn.graph @eps_negative(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a finite eps above 0, not -1}}
  %n = attn.rms_norm %x, %gain {eps = -1.0e-5}
  attn.return %n
}
// -----
attn.graph @eps_missing(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{requires attribute 'eps'}}
  %n = attn.rms_norm %x, %gain
  attn.return %n
}
// -----
attn.graph @eps_word(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a number as 'eps', not "small"}}
  %n = attn.rms_norm %x, %gain {eps = "small"}
  attn.return %n
}
// -----
attn.graph @computed_gain(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> {
  %y = attn.add %x, %x
  // expected-error @+1 {{%y is computed; weights, biases and gains must be arguments of the graph}}
  %z = attn.linear %x, [%y] : tensor<1x1xf16>
  attn.return %y
}
// -----
attn.graph @weight(%x: tensor<1x64xf16>, %w: tensor<64x32xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%w is [out, in] with 32 inputs; a row of %x has 64}}
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
attn.graph @bias_count(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>, %b: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has 1 biases for 2 weights; each weight or none has one}}
  %y, %z = attn.linear %x, [%w, %w] bias [%b]
  attn.return %y
}
// -----
attn.graph @bias_size(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>, %b: tensor<32xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%b has 32 elements; %w has 64 outputs}}
  %y = attn.linear %x, [%w] bias [%b]
  attn.return %y
}
// -----
attn.graph @no_weight(%x: tensor<1x64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs at least one weight}}
  attn.linear %x, []
  attn.return %x
}
// -----
attn.graph @result_count(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{operation defines 1 results but was provided 2 to bind}}
  %y, %z = attn.linear %x, [%w]
  attn.return %y
}
// -----
attn.graph @result_shape(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x32xf16> {
  // expected-error @+1 {{result 0 is 'tensor<1x32xf16>'; 'tensor<1x64xf16>' fits its operands}}
  %y = attn.linear %x, [%w] : tensor<1x32xf16>
  attn.return %y
}
// -----
attn.graph @result_type(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf32> {
  // expected-error @+1 {{must be variadic of an activation, tensor<TxN x f16 or bf16>}}
  %y = attn.linear %x, [%w] : tensor<1x64xf32>
  attn.return %y
}
// -----
attn.graph @type_count(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf32> {
  // expected-error @+1 {{has 2 types for 1 results}}
  %y = attn.linear %x, [%w] : tensor<1x64xf16>, tensor<1x64xf16>
  attn.return %y
}
// -----
attn.graph @activation(%x: tensor<1x64xf32>, %gain: tensor<64xf16>) -> tensor<1x64xf32> {
  // expected-error @+1 {{operand #0 must be an activation, tensor<TxN x f16 or bf16>, but got 'tensor<1x64xf32>'}}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  attn.return %n
}
// -----
attn.graph @rank(%x: tensor<64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a tensor of 2 dimensions here; %x is 'tensor<64xf16>'}}
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
attn.graph @odd(%q: tensor<1x66xf16>, %table: tensor<8x33xf32>, %pos: tensor<1xi32>) -> tensor<1x66xf16> {
  // expected-error @+1 {{needs an even head dimension to form pairs; %table is 33 wide}}
  %r = attn.rope %q, %table at %pos {style = half_split}
  attn.return %r
}
// -----
attn.graph @heads(%q: tensor<1x64xf16>, %table: tensor<8x48xf32>, %pos: tensor<1xi32>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%q has 64 columns; that is no whole number of heads of 48, the width of %table}}
  %r = attn.rope %q, %table at %pos {style = half_split}
  attn.return %r
}
// -----
attn.graph @style(%q: tensor<1x64xf16>, %table: tensor<8x64xf32>, %pos: tensor<1xi32>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has no style 'half_splt'; did you mean 'half_split'?}}
  %r = attn.rope %q, %table at %pos {style = half_splt}
  attn.return %r
}
// -----
attn.graph @style(%q: tensor<1x64xf16>, %table: tensor<8x64xf32>, %pos: tensor<1xi32>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has no style 'neox'; it has half_split and interleaved}}
  %r = attn.rope %q, %table at %pos {style = neox}
  attn.return %r
}
// -----
attn.graph @positions(%q: tensor<1x64xf16>, %table: tensor<8x64xf32>, %pos: tensor<2xi32>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%pos has 2 positions; the activations have 1 row}}
  %r = attn.rope %q, %table at %pos {style = half_split}
  attn.return %r
}
// -----
attn.graph @position_type(%q: tensor<1x64xf16>, %table: tensor<8x64xf32>, %pos: tensor<1xi64>) -> tensor<1x64xf16> {
  // expected-error @+1 {{must be positions, tensor<Txi32>, but got 'tensor<1xi64>'}}
  %r = attn.rope %q, %table at %pos {style = half_split}
  attn.return %r
}
// -----
attn.graph @four(%q: tensor<1x64xf16>, %table: tensor<8x64xf32>, %pos: tensor<1xi32>) -> tensor<1x64xf16> {
  // expected-error @+1 {{takes one or two values and a table, not 4 operands}}
  %a, %b, %c = attn.rope %q, %q, %q, %table at %pos {style = half_split}
  attn.return %a
}
// -----
attn.graph @odd_table() -> tensor<8x3xf32> {
  // expected-error @+1 {{needs an even head dimension up to 65536 to form pairs, not 3}}
  %t = attn.rope_table {base = 10000, dim = 3, positions = 8}
  attn.return %t
}
// -----
attn.graph @long_table() -> tensor<100000000x4xf32> {
  // expected-error @+1 {{needs 1 to 16777216 positions, not 100000000}}
  %t = attn.rope_table {base = 10000, dim = 4, positions = 100000000}
  attn.return %t
}
// -----
attn.graph @table() -> tensor<8x4xf32> {
  // expected-error @+1 {{needs {base, dim, positions}}}
  %t = attn.rope_table {base = 10000, dim = 4}
  attn.return %t
}
// -----
attn.graph @table() -> tensor<8x4xf32> {
  // expected-error @+1 {{needs an integer as 'dim', not 4.0}}
  %t = attn.rope_table {base = 10000, dim = 4.0, positions = 8}
  attn.return %t
}
// -----
attn.graph @append(%cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %k: tensor<1x64xf16>, %slot: tensor<1xi64>) {
  // expected-error @+1 {{%k has 64 columns; %cache holds 2 heads of 16, 32 in all}}
  %c = attn.kv_append %cache, %k, %k at %slot
  attn.return
}
// -----
attn.graph @slots(%cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %k: tensor<1x32xf16>, %slot: tensor<3xi64>) {
  // expected-error @+1 {{%slot has 3 slots; the activations have 1 row}}
  %c = attn.kv_append %cache, %k, %k at %slot
  attn.return
}
// -----
attn.graph @no_cache(%q: tensor<1x64xf16>, %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a cache here; %q is 'tensor<1x64xf16>'}}
  %o = attn.attention %q, %q, %len {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @query(%q: tensor<1x60xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x60xf16> {
  // expected-error @+1 {{%q has 60 columns; that is no whole number of heads of 16, the head dimension of %cache}}
  %o = attn.attention %q, %cache, %len {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @group(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 3, dim = 16, f16>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%q has 4 heads; a multiple of the 3 KV heads of %cache is needed}}
  %o = attn.attention %q, %cache, %len {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @scale(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a finite scale above 0, not nan}}
  %o = attn.attention %q, %cache, %len {scale = 0x7FF8000000000000 : f64}
  attn.return %o
}
// -----
attn.graph @scale(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a finite scale above 0, not INF}}
  %o = attn.attention %q, %cache, %len {scale = 0x7F800000 : f32}
  attn.return %o
}
// -----
attn.graph @lengths(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>,
    %len: !attn.lengths<2, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%len has 2 lengths; the activations have 1 row}}
  %o = attn.attention %q, %cache, %len {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @add(%x: tensor<1x64xf16>, %y: tensor<1x32xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{adds values of one shape, not 'tensor<1x64xf16>' and 'tensor<1x32xf16>'}}
  %z = attn.add %x, %y
  attn.return %z
}
// -----
attn.graph @add_scale(%x: tensor<1x64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a finite scale}}
  %z = attn.add %x, %x {scale = 1.0e999}
  attn.return %z
}
// -----
attn.graph @large_add_scale(%x: tensor<1x64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a finite scale that f32 can hold, not 1.000000e+300}}
  %z = attn.add %x, %x {scale = 1.0e300}
  attn.return %z
}
// -----
attn.graph @v_dim(%cache: !attn.kv_cache<heads = 2, dim = 16, v_dim = 8, f16>, %k: tensor<1x32xf16>, %slot: tensor<1xi64>) {
  // expected-error @+1 {{%k has 32 columns; %cache holds 2 heads of 8, 16 in all}}
  %c = attn.kv_append %cache, %k, %k at %slot
  attn.return
}
// -----
attn.graph @pages(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, page = 8, f16>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%cache has pages of 8 tokens; name the block table that orders them: `pages %table` behind the lengths}}
  %o = attn.attention %q, %cache, %len {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @pages(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>, %t: tensor<1x4xi32>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%cache has no pages, so a block table orders nothing; give the cache a page size, as in `page = 16`}}
  %o = attn.attention %q, %cache, %len pages %t {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @pages(%q: tensor<2x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, page = 8, f16>, %t: tensor<1x4xi32>,
    %len: !attn.lengths<2, capacity = 8>) -> tensor<2x64xf16> {
  // expected-error @+1 {{%t has 1 rows; there are 2 requests}}
  %o = attn.attention %q, %cache, %len pages %t {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @pages(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, page = 8, f16>, %t: tensor<4xi32>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{must be a block table, tensor<BxPAGESxi32>, but got 'tensor<4xi32>'}}
  %o = attn.attention %q, %cache, %len pages %t {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @window(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a window of at least 1 token, not 0}}
  %o = attn.attention %q, %cache, %len {scale = 0.25, window = 0}
  attn.return %o
}
// -----
attn.graph @window_negative(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a window of at least 1 token, not -1}}
  %o = attn.attention %q, %cache, %len {scale = 0.25, window = -1}
  attn.return %o
}
// -----
attn.graph @softcap(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a finite softcap above 0, not -1}}
  %o = attn.attention %q, %cache, %len {scale = 0.25, softcap = -1}
  attn.return %o
}
// -----
attn.graph @large_softcap(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a softcap from 1.000000e-18 to 1.000000e+18, not 1.000000e+300}}
  %o = attn.attention %q, %cache, %len {scale = 0.25, softcap = 1.0e300}
  attn.return %o
}
// -----
attn.graph @large_scale(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a scale from 1.000000e-18 to 1.000000e+18, not 1.000000e+300}}
  %o = attn.attention %q, %cache, %len {scale = 1.0e300}
  attn.return %o
}
// -----
attn.graph @small_scale(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a scale from 1.000000e-18 to 1.000000e+18, not 1.000000e-300}}
  %o = attn.attention %q, %cache, %len {scale = 1.0e-300}
  attn.return %o
}
// -----
attn.graph @small_eps(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a finite eps that f32 can hold, not 1.000000e-300}}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-300}
  attn.return %n
}
// -----
attn.graph @large_eps(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a finite eps that f32 can hold, not 1.000000e+300}}
  %n = attn.layer_norm %x, %gain {eps = 1.0e300}
  attn.return %n
}
// -----
attn.graph @large_offset(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs a finite offset that f32 can hold, not 1.000000e+300}}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5, offset = 1.0e300}
  attn.return %n
}
// -----
attn.graph @sinks(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %len: !attn.lengths<1, capacity = 8>, %s: tensor<2xf32>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%s has 2 elements; %q has 4 heads}}
  %o = attn.attention %q, %cache, %len sinks %s {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @scales(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %len: !attn.lengths<1, capacity = 8>, %s: tensor<4xf32>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%s has 4 elements; 1 or 2, the KV heads, are possible}}
  %o = attn.attention %q, %cache, %len scales %s, %s {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @no_scales(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f8E4M3FN>, %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{needs scales for a cache of f8E4M3FN: `scales %k_scale, %v_scale`}}
  %o = attn.attention %q, %cache, %len {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @other_scales(%q: tensor<1x64xf16>, %k: tensor<1x32xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>,
    %slot: tensor<1xi64>, %s: tensor<1xf32>, %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  %c = attn.kv_append %cache, %k, %k at %slot scales %s, %s
  // expected-error @+1 {{has other scales than the append to %c}}
  %o = attn.attention %q, %c, %len {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @bias_args(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has 2 arguments here; 3 are needed}}
  %o = attn.attention %q, %cache, %len {scale = 0.25} bias(%h, %i) {
  }
  attn.return %o
}
// -----
attn.graph @bias_op(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  %o = attn.attention %q, %cache, %len {scale = 0.25} bias(%h, %i, %j) {
    // expected-error @+1 {{'arith.divsi' is not possible in a bias; it has arith.addf, arith.addi, arith.andi}}
    %d = arith.divsi %i, %j : index
    %f = arith.constant 1.0 : f32
    attn.yield %f
  }
  attn.return %o
}
// -----
attn.graph @bias_at_constant(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %t: tensor<4xf32>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  %o = attn.attention %q, %cache, %len {scale = 0.25} bias(%h, %i, %j) {
    %last = arith.constant 3 : index
    %a = attn.at %t[%last]
    %behind = arith.constant 4 : index
    // expected-error @+1 {{reads element 4 of %t, which has 4}}
    %s = attn.at %t[%behind]
    attn.yield %s
  }
  attn.return %o
}
// -----
attn.graph @bias_at_negative(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %t: tensor<4xf32>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  %o = attn.attention %q, %cache, %len {scale = 0.25} bias(%h, %i, %j) {
    %before = arith.constant -1 : index
    // expected-error @+1 {{reads element -1 of %t, which has 4}}
    %s = attn.at %t[%before]
    attn.yield %s
  }
  attn.return %o
}
// -----
attn.graph @bias_at_head(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %t: tensor<3xf32>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  %o = attn.attention %q, %cache, %len {scale = 0.25} bias(%h, %i, %j) {
    // expected-error @+1 {{reads an element for each of 4 query heads of %t, which has 3}}
    %s = attn.at %t[%h]
    attn.yield %s
  }
  attn.return %o
}
// -----
attn.graph @bias_at(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 2, dim = 16, f16>, %t: tensor<2x2xf32>,
    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x64xf16> {
  %o = attn.attention %q, %cache, %len {scale = 0.25} bias(%h, %i, %j) {
    // expected-error @+1 {{needs a tensor of 1 dimension here; %t is 'tensor<2x2xf32>'}}
    %s = attn.at %t[%h]
    attn.yield %s
  }
  attn.return %o
}
// -----
attn.graph @layer_norm(%x: tensor<1x64xf16>, %gain: tensor<32xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%gain has 32 elements; a row of %x has 64}}
  %y = attn.layer_norm %x, %gain {eps = 1.0e-5}
  attn.return %y
}
// -----
attn.graph @norm_groups(%x: tensor<1x64xf16>, %gain: tensor<24xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%gain has 24 elements; a row of %x has 64, which is no multiple of it}}
  %y = attn.rms_norm %x, %gain {eps = 1.0e-5}
  attn.return %y
}
// -----
attn.graph @layer_norm_bias(%x: tensor<1x64xf16>, %gain: tensor<64xf16>, %bias: tensor<48xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{%bias has 48 elements; a row of %x has 64}}
  %y = attn.layer_norm %x, %gain, %bias {eps = 1.0e-5}
  attn.return %y
}
// -----
attn.graph @rope(%x: tensor<1x64xf16>, %pos: tensor<1xi32>, %t: tensor<8x32xf32>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has heads of 16 elements; %t rotates 32, so head_dim must be at least that}}
  %y = attn.rope %x, %t at %pos {style = half_split, head_dim = 16}
  attn.return %y
}
// -----
attn.graph @rope(%x: tensor<1x60xf16>, %pos: tensor<1xi32>, %t: tensor<8x16xf32>) -> tensor<1x60xf16> {
  // expected-error @+1 {{%x has 60 columns; that is no whole number of heads of 32, the head_dim}}
  %y = attn.rope %x, %t at %pos {style = half_split, head_dim = 32}
  attn.return %y
}
// -----
attn.graph @table() -> tensor<4x8xf32> {
  // expected-error @+1 {{with scaling = llama3 needs high_freq_factor}}
  %t = attn.rope_table {base = 10000, dim = 8, positions = 4, scaling = llama3, factor = 8, original_positions = 64, low_freq_factor = 1}
  attn.return %t
}
// -----
attn.graph @table() -> tensor<4x8xf32> {
  // expected-error @+1 {{with no scaling has no factor}}
  %t = attn.rope_table {base = 10000, dim = 8, positions = 4, factor = 8}
  attn.return %t
}
// -----
attn.graph @table() -> tensor<4x8xf32> {
  // expected-error @+1 {{with linear has no beta_fast}}
  %t = attn.rope_table {base = 10000, dim = 8, positions = 4, scaling = linear, factor = 8, beta_fast = 1}
  attn.return %t
}
// -----
attn.graph @table() -> tensor<4x8xf32> {
  // expected-error @+1 {{needs a finite factor above 0, not 0}}
  %t = attn.rope_table {base = 10000, dim = 8, positions = 4, scaling = yarn, factor = 0, original_positions = 64}
  attn.return %t
}
// -----
attn.graph @table() -> tensor<4x8xf32> {
  // expected-error @+1 {{needs original_positions of at least 1, not 0}}
  %t = attn.rope_table {base = 10000, dim = 8, positions = 4, scaling = yarn, factor = 2, original_positions = 0}
  attn.return %t
}
// -----
attn.graph @table() -> tensor<4x8xf32> {
  // expected-error @+1 {{needs a low_freq_factor below the high_freq_factor, not 4.000000e+00 and 4.000000e+00}}
  %t = attn.rope_table {base = 10000, dim = 8, positions = 4, scaling = llama3, factor = 8, original_positions = 64, low_freq_factor = 4, high_freq_factor = 4}
  attn.return %t
}
// -----
attn.graph @table() -> tensor<4x8xf32> {
  // expected-error @+1 {{has no scaling 'yarm'; did you mean 'yarn'?}}
  %t = attn.rope_table {base = 10000, dim = 8, positions = 4, scaling = yarm}
  attn.return %t
}
// -----
attn.graph @starts(%q: tensor<6x16xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>, %len: !attn.lengths<2, capacity = 8>,
    %starts: tensor<2xi32>) -> tensor<6x16xf16> {
  // expected-error @+1 {{%starts has 2 elements; 2 requests need 3}}
  %o = attn.attention %q, %cache, %len queries %starts {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @no_starts(%k: tensor<6x16xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>, %slot: tensor<6xi64>,
    %starts: tensor<1xi32>) -> tensor<6x16xf16> {
  // expected-error @+1 {{%starts has 1 element; each request's first row and the end of the last are needed}}
  %c = attn.kv_append %cache, %k, %k at %slot queries %starts
  %o = attn.add %k, %k
  attn.return %o
}
// -----
attn.graph @mask_alone(%q: tensor<2x16xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>, %len: !attn.lengths<2, capacity = 8>,
    %mask: tensor<2xi64>) -> tensor<2x16xf16> {
  // expected-error @+1 {{has a mask of query tokens, but one of them a request; name the rows of each request: `queries %starts` before the mask}}
  %o = attn.attention %q, %cache, %len mask %mask {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @mask_size(%q: tensor<6x16xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>, %len: !attn.lengths<2, capacity = 8>,
    %starts: tensor<3xi32>, %mask: tensor<2xi64>) -> tensor<6x16xf16> {
  // expected-error @+1 {{%mask has 2 masks; the activations have 6 rows}}
  %o = attn.attention %q, %cache, %len queries %starts mask %mask {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @mask_bits(%q: tensor<65x16xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>, %len: !attn.lengths<2, capacity = 8>,
    %starts: tensor<3xi32>, %mask: tensor<65xi64>) -> tensor<65x16xf16> {
  // expected-error @+1 {{has a mask of 64 bits a row; 65 query tokens need more}}
  %o = attn.attention %q, %cache, %len queries %starts mask %mask {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @other_queries(%q: tensor<6x16xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>, %slot: tensor<6xi64>,
    %len: !attn.lengths<2, capacity = 8>, %starts: tensor<3xi32>, %others: tensor<3xi32>) -> tensor<6x16xf16> {
  %c = attn.kv_append %cache, %q, %q at %slot queries %others
  // expected-error @+1 {{has other queries than the append to %c}}
  %o = attn.attention %q, %c, %len queries %starts {scale = 0.25}
  attn.return %o
}
// -----
attn.graph @after_append(%q: tensor<1x16xf16>, %cache: !attn.kv_cache<heads = 1, dim = 16, f16>, %slot: tensor<1xi64>,
    %len: !attn.lengths<1, capacity = 8>, %len_b: !attn.lengths<1, capacity = 8>) -> (tensor<1x16xf16>, tensor<1x16xf16>) {
  // expected-note @+1 {{the append}}
  %c = attn.kv_append %cache, %q, %q at %slot
  %o = attn.attention %q, %c, %len {scale = 0.25}
  // expected-error @+1 {{attends to %cache as it was before an append, which has written in place by then: attend to the append's result, or before it}}
  %p = attn.attention %o, %cache, %len_b {scale = 0.25}
  attn.return %o, %p
}
