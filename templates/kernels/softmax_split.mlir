// An online softmax over a cache that is split over 4 CTAs, with its log-sum-exp.
//
// Each of 2 KV heads (the work items) serves 3 query heads. A CTA attends to a quarter of the groups of cached tokens and
// gets a summand (o, m, l) a query head; the summands are merged by a butterfly. lse is the natural log of the sum of
// exp(score); heads of 80 numbers; the pool has more rows than the 150 tokens that are in use, and they hold anything.
//
//   cfc run softmax_split.mlir --device=emu --input q=q.npy --input cache.k=k.npy --input cache.v=v.npy --input len=len.npy --output out
kernel.func @softmax_split(%q: memref<480xf16>, %cache: !kernel.cache<heads = 2, dim = 80, f16>, %len: memref<1xi32>,
    %o: memref<480xf32>, %lse: memref<6xf32>)
    axes(head = 2 @grid, part = 4 @cta, warp = 4 @warp) plan(ring_stages = 3) {
  kernel.for_items %h over head {
    %t = kernel.read %q at %h : memref<480xf16> -> !kernel.tile<240xf16>
    %kv = kernel.load_cache %cache tokens %len at %h bound 4096 : !kernel.cache<heads = 2, dim = 80, f16>, memref<1xi32>, !kernel.item -> !kernel.kv_stream<80, f16, part: split(0)>
    %p = kernel.attend %t, %kv scale 0.11 : !kernel.tile<240xf16>, !kernel.kv_stream<80, f16, part: split(0)> -> !kernel.tile<3x82xf32, part: partial(softmax)>
    %s = kernel.exchange reduce %p over "part" by butterfly : !kernel.tile<3x82xf32, part: partial(softmax)> -> !kernel.tile<3x82xf32>
    %n, %l = kernel.normalize %s : !kernel.tile<3x82xf32> -> !kernel.tile<240xf32>, !kernel.tile<3xf32>
    kernel.write %n, %o at %h : !kernel.tile<240xf32>, memref<480xf32>
    kernel.write %l, %lse at %h : !kernel.tile<3xf32>, memref<6xf32>
  }
  kernel.return
}
