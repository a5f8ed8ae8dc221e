// What is misspelt, misplaced or not a graph at all.
// RUN: cfc-opt %s -verify-diagnostics -split-input-file

attn.graph @operation(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{custom op 'attn.rmsnorm' is unknown; did you mean 'attn.rms_norm'?}}
  %n = attn.rmsnorm %x, %gain {eps = 1.0e-5}
  attn.return %n
}
// -----
attn.graph @operation(%x: tensor<1x64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{custom op 'attn.convolution' is unknown}}
  %n = attn.convolution %x
  attn.return %n
}
// -----
attn.graph @attribute(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has no attribute 'epss'; did you mean 'eps'?}}
  %n = attn.rms_norm %x, %gain {epss = 1.0e-5}
  attn.return %n
}
// -----
attn.graph @attribute(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has no attribute 'momentum'; it has eps, offset}}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5, momentum = 0.9}
  attn.return %n
}
// -----
attn.graph @attribute(%x: tensor<1x64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has no attribute 'alpha'}}
  %n = attn.add %x, %x {alpha = 2.0}
  attn.return %n
}
// -----
attn.graph @twice(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has 'eps' twice}}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5, eps = 1.0e-6}
  attn.return %n
}
// -----
attn.graph @value(%x: tensor<1x64xf16>, %gain: tensor<64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{uses %gian, which is not defined before it; did you mean %gain?}}
  %n = attn.rms_norm %x, %gian {eps = 1.0e-5}
  attn.return %n
}
// -----
attn.graph @order(%x: tensor<1x64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{uses %later, which is not defined before it}}
  %y = attn.add %x, %later
  %later = attn.add %x, %x
  attn.return %y
}
// -----
// expected-error @+1 {{needs named arguments, as in '%x: type'}}
attn.graph @unnamed(tensor<1x64xf16>) {
  attn.return
}
// -----
// expected-error @+1 {{is called 'a-b'; kernels are named after it: use letters, digits and _}}
attn.graph @"a-b"() {
  attn.return
}
// -----
// expected-error @+1 {{has most_requests = 0 : i64; a number of requests, 1 to 1048576, is needed}}
attn.graph @no_requests(%x: tensor<1x64xf16>) -> tensor<1x64xf16> attributes {most_requests = 0 : i64} {
  attn.return %x
}
// -----
// expected-error @+1 {{knows no attribute 'most_request' of the graph; there is most_requests}}
attn.graph @misspelt(%x: tensor<1x64xf16>) -> tensor<1x64xf16> attributes {most_request = 4 : i64} {
  attn.return %x
}
// -----
// expected-error @+1 {{knows no attribute 'attn.most_requests' of the graph; there is most_requests}}
attn.graph @prefixed(%x: tensor<1x64xf16>) -> tensor<1x64xf16> attributes {attn.most_requests = 4 : i64} {
  attn.return %x
}
// -----
// expected-error @+1 {{knows no attribute 'attn.nam' of an argument; there is attn.name}}
attn.graph @argument(%x: tensor<1x64xf16> {attn.nam = "y"}) -> tensor<1x64xf16> {
  attn.return %x
}
// -----
// expected-error @+1 {{has most_requests = 9223372036854775807 : i64; a number of requests, 1 to 1048576, is needed}}
attn.graph @too_many(%x: tensor<1x64xf16>) -> tensor<1x64xf16> attributes {most_requests = 9223372036854775807 : i64} {
  attn.return %x
}
// -----
// expected-error @+1 {{has most_requests = 8 : si64; a number of requests, 1 to 1048576, is needed}}
attn.graph @signed(%x: tensor<1x64xf16>) -> tensor<1x64xf16> attributes {most_requests = 8 : si64} {
  attn.return %x
}
// -----
// expected-error @+1 {{has most_requests = "all"; a number of requests, 1 to 1048576, is needed}}
attn.graph @no_number(%x: tensor<1x64xf16>) -> tensor<1x64xf16> attributes {most_requests = "all"} {
  attn.return %x
}
// -----
// expected-error @+1 {{argument %x is 'tensor<?x64xf16>'; a tensor of fixed, positive sizes of f16, bf16, f32, i32 or i64, a cache or lengths is needed}}
attn.graph @dynamic(%x: tensor<?x64xf16>) {
  attn.return
}
// -----
// expected-error @+1 {{argument %x is 'tensor<1x0xf16>'}}
attn.graph @empty_tensor(%x: tensor<1x0xf16>) {
  attn.return
}
// -----
// expected-error @+1 {{argument %x is 'tensor<5000000000x5000000000xf16>'}}
attn.graph @huge_tensor(%x: tensor<5000000000x5000000000xf16>) {
  attn.return
}
// -----
// expected-error @+1 {{argument %x is 'f32'}}
attn.graph @scalar(%x: f32) {
  attn.return
}
// -----
// expected-error @+1 {{has no operations: the graph does not end with attn.return}}
attn.graph @empty() {
}
// -----
attn.graph @no_return(%x: tensor<1x64xf16>) {
  // expected-error @+1 {{the graph does not end with attn.return, which names its results}}
  %y = attn.add %x, %x
}
// -----
attn.graph @returns(%x: tensor<1x64xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has 0 values; the graph declares 1}}
  attn.return
}
// -----
attn.graph @returns(%x: tensor<1x64xf16>) -> tensor<1x64xbf16> {
  %y = attn.add %x, %x
  // expected-error @+1 {{value 0 is 'tensor<1x64xf16>'; the graph declares 'tensor<1x64xbf16>'}}
  attn.return %y
}
// -----
attn.graph @foreign(%x: tensor<1x64xf16>) {
  // expected-error @+1 {{'arith.constant' cannot be in a graph: only attn's operations can}}
  %c = arith.constant 1.0 : f16
  attn.return
}
// -----
// expected-error @+1 {{a cache has 1 to 65536 heads of 1 to 65536 elements, not heads = 0, dim = 16}}
attn.graph @cache(%c: !attn.kv_cache<heads = 0, dim = 16, f16>) {
  attn.return
}
// -----
// expected-error @+1 {{a cache holds f16, bf16 or f8E4M3FN, not 'f32'}}
attn.graph @cache(%c: !attn.kv_cache<heads = 1, dim = 16, f32>) {
  attn.return
}
// -----
// expected-error @+1 {{a page has at least 1 token; leave `page` out for a cache without pages}}
attn.graph @cache(%c: !attn.kv_cache<heads = 1, dim = 16, page = 0, f16>) {
  attn.return
}
// -----
// expected-error @+2 {{expected non-function type}}
// expected-note @+1 {{'tensr' is no type here; did you mean 'tensor'? There are tensor<1x4096xf16>, of f16, bf16, f32, i32 or i64; !attn.kv_cache<heads = 8, dim = 128, f16> and !attn.lengths<1, capacity = 8192>}}
attn.graph @misspelt(%x: tensr<1x64xf16>) {
  attn.return
}
// -----
// expected-error @+2 {{expected non-function type}}
// expected-note @+1 {{'fp16' is no type here; did you mean 'f16'?}}
attn.graph @element(%x: tensor<1x64xf16>) -> tensor<1x64xfp16> {
  attn.return
}
// -----
// expected-error @+2 {{unknown  type `kv_cashe` in dialect `attn`}}
// expected-note @+1 {{'kv_cashe' is no type here; did you mean '!attn.kv_cache'?}}
attn.graph @dialect(%c: !attn.kv_cashe<heads = 1, dim = 16, f16>) {
  attn.return
}
// -----
// expected-error @+2 {{expected non-function type}}
// expected-note @+1 {{'lengths' is no type here; did you mean '!attn.lengths'?}}
attn.graph @bare(%l: lengths<1, capacity = 8>) {
  attn.return
}
// -----
// expected-error @+2 {{expected non-function type}}
// expected-note @+1 {{there are tensor<1x4096xf16>}}
attn.graph @none(%x: ) {
  attn.return
}
// -----
// expected-error @+1 {{a page has 1 to 65536 tokens, not 70000}}
attn.graph @cache(%c: !attn.kv_cache<heads = 1, dim = 16, page = 70000, f16>) {
  attn.return
}
// -----
// expected-error @+1 {{a capacity is from 1 to 2147483647 tokens, not 0}}
attn.graph @lengths(%l: !attn.lengths<1, capacity = 0>) {
  attn.return
}
// -----
// expected-error @+1 {{must be inside attn.graph}}
"attn.graph"() <{function_type = () -> (), sym_name = "g"}> ({ ^bb0(%x: tensor<1x64xf16>): attn.return %x }) : () -> ()
