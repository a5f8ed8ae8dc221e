// RUN: cfc-opt %s -verify-diagnostics -split-input-file --attn-to-kernel

// expected-error @+1 {{has no plan; run attn-plan first}}
attn.graph @no_plan(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> {
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
// expected-error @+1 {{attn.plan:1:1: error: unknown line 'grph'; did you mean 'graph'?}}
attn.graph @no_text(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> attributes {attn.plan = "grph x"} {
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
// expected-error @+1 {{the plan describes 2 kernels; its operations are in 1}}
attn.graph @too_many(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> attributes {attn.plan =
    "graph too_many\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 64\0Akernel 1: part = 1\0Aop linear(%y): kernel = 0, split = rows"} {
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
attn.graph @unplanned(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> attributes {attn.plan =
    "graph unplanned\0Akernel 0: warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64\0Aop linear(%y): kernel = 0, split = rows"} {
  // expected-error @-2 {{the plan leaves out choices for kernel 0; attn-plan fills them in}}
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
// expected-error @+1 {{the plan leaves out linear(%y); attn-plan fills it in}}
attn.graph @missing_op(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> attributes {attn.plan =
    "graph missing_op\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 64"} {
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
// expected-error @+1 {{the plan is for graph @other}}
attn.graph @this(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> attributes {attn.plan = "graph other"} {
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
// expected-error @+1 {{the plan cuts the heads of kernel 0 into chunks = 4: that takes a kernel of one attention without linears}}
attn.graph @no_heads(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> attributes {attn.plan =
    "graph no_heads\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 64, chunks = 4\0Aop linear(%y): kernel = 0, split = rows"} {
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
// What is not cut has no states to leave.
// expected-error @+1 {{the plan has finish = reader for attention(%o): that takes chunks of heads, of one token, which linears of other kernels read whole}}
attn.graph @not_cut(%q: tensor<1x128xf16>, %wo: tensor<96x128xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %len: !attn.lengths<1, capacity = 64>)
    -> tensor<1x96xf16> attributes {attn.plan =
    "graph not_cut\0Akernel 0: part = 2, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = 1\0Akernel 1: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 16\0Aop attention(%o): kernel = 0, reduce = push, finish = reader\0Aop linear(%y): kernel = 1, split = rows"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  %y = attn.linear %o, [%wo]
  attn.return %y
}
// -----
// Shares of a work list are not parts of a head.
// expected-error @+1 {{the plan has finish = reader for attention(%o): that takes chunks of heads, of one token, which linears of other kernels read whole}}
attn.graph @shares(%q: tensor<1x128xf16>, %wo: tensor<96x128xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %len: !attn.lengths<1, capacity = 64>)
    -> tensor<1x96xf16> attributes {attn.plan =
    "graph shares\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = work\0Akernel 1: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 16\0Aop attention(%o): kernel = 0, reduce = push, finish = reader\0Aop linear(%y): kernel = 1, split = rows"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  %y = attn.linear %o, [%wo]
  attn.return %y
}
// -----
// expected-error @+1 {{the plan has finish = reader for attention(%o): that takes chunks of heads, of one token, which linears of other kernels read whole}}
attn.graph @tokens(%q: tensor<2x128xf16>, %wo: tensor<96x128xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %len: !attn.lengths<2, capacity = 64>)
    -> tensor<2x96xf16> attributes {attn.plan =
    "graph tokens\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = 4\0Akernel 1: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 16, token_groups = 1\0Aop attention(%o): kernel = 0, reduce = push, finish = reader\0Aop linear(%y): kernel = 1, split = rows"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  %y = attn.linear %o, [%wo]
  attn.return %y
}
// -----
// Nobody reads it in the graph.
// expected-error @+1 {{the plan has finish = reader for attention(%o): that takes chunks of heads, of one token, which linears of other kernels read whole}}
attn.graph @returned(%q: tensor<1x128xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %len: !attn.lengths<1, capacity = 64>)
    -> tensor<1x128xf16> attributes {attn.plan =
    "graph returned\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = 4\0Aop attention(%o): kernel = 0, reduce = push, finish = reader"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  attn.return %o
}
// -----
// A reader that takes a head of it.
// expected-error @+1 {{the plan has finish = reader for attention(%o): that takes chunks of heads, of one token, which linears of other kernels read whole}}
attn.graph @by_heads(%q: tensor<1x128xf16>, %wo: tensor<96x128xf16>, %e: tensor<1x128xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %len: !attn.lengths<1, capacity = 64>)
    -> (tensor<1x96xf16>, tensor<1x128xf16>) attributes {attn.plan =
    "graph by_heads\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = 4\0Akernel 1: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 16\0Aop attention(%o): kernel = 0, reduce = push, finish = reader\0Aop add(%a): kernel = 1\0Aop linear(%y): kernel = 1, split = rows"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  %a = attn.add %o, %e
  %y = attn.linear %o, [%wo]
  attn.return %y, %a
}
// -----
// Who merges the chunks is a choice where both can.
// expected-error @+1 {{the plan leaves out choices for attention(%o); attn-plan fills them in}}
attn.graph @open(%q: tensor<1x128xf16>, %wo: tensor<96x128xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %len: !attn.lengths<1, capacity = 64>)
    -> tensor<1x96xf16> attributes {attn.plan =
    "graph open\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = 4\0Akernel 1: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 16\0Aop attention(%o): kernel = 0, reduce = push\0Aop linear(%y): kernel = 1, split = rows"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  %y = attn.linear %o, [%wo]
  attn.return %y
}
// -----
// expected-error @+1 {{the plan has stacked = 1 in kernel 0: that takes a kernel of one linear of several weights alike, whose results are only stored}}
attn.graph @one_weight(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> attributes {attn.plan =
    "graph one_weight\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 64, stacked = 1\0Aop linear(%y): kernel = 0, split = rows"} {
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
// expected-error @+1 {{the plan has stacked = 1 in kernel 0: that takes a kernel of one linear of several weights alike, whose results are only stored}}
attn.graph @added(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>, %u: tensor<64x64xf16>) -> (tensor<1x64xf16>, tensor<1x64xf16>) attributes {attn.plan =
    "graph added\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 64, stacked = 1\0Aop linear(%y, %z): kernel = 0, split = rows\0Aop add(%s): kernel = 0"} {
  %y, %z = attn.linear %x, [%w, %u]
  %s = attn.add %x, %y
  attn.return %s, %z
}
// -----
// expected-error @+1 {{the plan has stacked = 1 in kernel 0: that takes a kernel of one linear of several weights alike, whose results are only stored}}
attn.graph @unlike(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>, %u: tensor<64x64xf16>) -> (tensor<1x64xf16>, tensor<1x64xbf16>) attributes {attn.plan =
    "graph unlike\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 64, stacked = 1\0Aop linear(%y, %z): kernel = 0, split = rows"} {
  %y, %z = attn.linear %x, [%w, %u] : tensor<1x64xf16>, tensor<1x64xbf16>
  attn.return %y, %z
}
// -----
// expected-error @+1 {{the plan has stacked = 1 and rows_per_item = 64 in kernel 0, which does not divide the rows of each weight of linear(%y, %z)}}
attn.graph @straddles(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>, %u: tensor<96x64xf16>) -> (tensor<1x64xf16>, tensor<1x96xf16>) attributes {attn.plan =
    "graph straddles\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 64, stacked = 1\0Aop linear(%y, %z): kernel = 0, split = rows"} {
  %y, %z = attn.linear %x, [%w, %u]
  attn.return %y, %z
}
