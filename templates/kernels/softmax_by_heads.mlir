// Attention whose softmaxes are merged head by head: a reduce_scatter of (o, m, l), and heads that travel rounded.
//
// Each of 3 KV heads (the work items) serves 8 query heads; 4 CTAs attend to a quarter of the tokens each. A reduce would
// send all 8 summands to every peer; here a CTA sends each peer two heads, merges its own two, divides and rounds them,
// and gathers 2 bytes an element instead of 4. All CTAs then multiply rows of the output projection with all 8 heads,
// and the products are summed over the items.
//
//   cfc run softmax_by_heads.mlir --device=emu --input q=q.npy --input cache.k=k.npy --input cache.v=v.npy --input len=len.npy --input w=w.npy --output out
kernel.func @softmax_by_heads(%q: memref<768xf16>, %cache: !kernel.cache<heads = 3, dim = 32, f16>, %len: memref<1xi32>,
    %w: memref<40x768xf16>, %lse: memref<24xf32>, %y: memref<40xf32>)
    axes(head = 3 @grid, part = 4 @cta, warp = 4 @warp) plan(ring_stages = 3) {
  kernel.for_items %h over head {
    %t = kernel.read %q at %h : memref<768xf16> -> !kernel.tile<256xf16>
    %kv = kernel.load_cache %cache tokens %len at %h bound 4096 : !kernel.cache<heads = 3, dim = 32, f16>, memref<1xi32>, !kernel.item -> !kernel.kv_stream<32, f16, part: split(0)>
    %p = kernel.attend %t, %kv scale 0.18 : !kernel.tile<256xf16>, !kernel.kv_stream<32, f16, part: split(0)> -> !kernel.tile<8x34xf32, part: partial(softmax)>
    %s = kernel.exchange reduce_scatter %p over "part" by push : !kernel.tile<8x34xf32, part: partial(softmax)> -> !kernel.tile<8x34xf32, part: split(0)>
    %n, %l = kernel.normalize %s : !kernel.tile<8x34xf32, part: split(0)> -> !kernel.tile<256xf16, part: split(0)>, !kernel.tile<8xf32, part: split(0)>
    kernel.write %l, %lse at %h : !kernel.tile<8xf32, part: split(0)>, memref<24xf32>
    %o = kernel.exchange gather %n over "part" by async : !kernel.tile<256xf16, part: split(0)> -> !kernel.tile<256xf16>
    %ws = kernel.load %w rows [40] columns at %h : memref<40x768xf16> -> !kernel.stream<40x256xf16, part: split(0)>
    %m = kernel.matmul %ws, %o slots 1 : !kernel.stream<40x256xf16, part: split(0)>, !kernel.tile<256xf16> -> !kernel.tile<40xf32, part: split(0), head: partial(sum)>
    kernel.finish %m over head by ordered : !kernel.tile<40xf32, part: split(0), head: partial(sum)> as %sum: !kernel.tile<40xf32, part: split(0)> {
      kernel.write %sum, %y : !kernel.tile<40xf32, part: split(0)>, memref<40xf32>
    }
  }
  kernel.return
}
