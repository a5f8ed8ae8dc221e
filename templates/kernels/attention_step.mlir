// One decode step of attention: rotate, append to the cache, attend to what is cached and to the new token.
//
// Each of 2 KV heads (the work items) serves 2 query heads of 48 numbers; 2 CTAs share the cached tokens and reduce their
// softmaxes by stores that count. The new token is merged last. Where `slot` is -1 the request is idle: nothing is
// appended, the output is 0 and lse -inf.
//
//   cfc run attention_step.mlir --device=emu --input q=q.npy --input k=k.npy --input v=v.npy --input table=table.npy \
//       --input position=position.npy --input slot=slot.npy --input len=len.npy --input cache.k=ck.npy --input cache.v=cv.npy --output out
kernel.func @attention_step(%q: memref<192xf16>, %k: memref<96xf16>, %v: memref<96xf16>, %table: memref<256x48xf32>, %position: memref<1xi32>,
    %slot: memref<1xi64>, %len: memref<1xi32>, %cache: !kernel.cache<heads = 2, dim = 48, f16>, %o: memref<192xf32>, %lse: memref<4xf32>)
    axes(head = 2 @grid, part = 2 @cta, warp = 4 @warp) plan(ring_stages = 4) {
  kernel.for_items %h over head {
    %tq = kernel.read %q at %h : memref<192xf16> -> !kernel.tile<96xf16>
    %tk = kernel.read %k at %h : memref<96xf16> -> !kernel.tile<48xf16>
    %tv = kernel.read %v at %h : memref<96xf16> -> !kernel.tile<48xf16>
    %rq = kernel.rope half_split %tq, %table position %position : !kernel.tile<96xf16>, memref<256x48xf32>, memref<1xi32> -> !kernel.tile<96xf16>
    %rk = kernel.rope half_split %tk, %table position %position : !kernel.tile<48xf16>, memref<256x48xf32>, memref<1xi32> -> !kernel.tile<48xf16>
    kernel.append %rk, %tv to %cache slot %slot at %h : !kernel.tile<48xf16>, !kernel.tile<48xf16>, !kernel.cache<heads = 2, dim = 48, f16>, memref<1xi64>, !kernel.item
    %kv = kernel.load_cache %cache tokens %len slot %slot at %h bound 4096 : !kernel.cache<heads = 2, dim = 48, f16>, memref<1xi32>, memref<1xi64>, !kernel.item -> !kernel.kv_stream<48, f16, part: split(0)>
    %p = kernel.attend %rq, %kv scale 0.14 : !kernel.tile<96xf16>, !kernel.kv_stream<48, f16, part: split(0)> -> !kernel.tile<2x50xf32, part: partial(softmax)>
    %s = kernel.exchange reduce %p over "part" by async : !kernel.tile<2x50xf32, part: partial(softmax)> -> !kernel.tile<2x50xf32>
    %n = kernel.attend_new %s, %rq, %rk, %tv slot %slot scale 0.14 : !kernel.tile<2x50xf32>, !kernel.tile<96xf16>, !kernel.tile<48xf16>, !kernel.tile<48xf16>, memref<1xi64> -> !kernel.tile<2x50xf32>
    %out, %l = kernel.normalize %n : !kernel.tile<2x50xf32> -> !kernel.tile<96xf32>, !kernel.tile<2xf32>
    kernel.write %out, %o at %h : !kernel.tile<96xf32>, memref<192xf32>
    kernel.write %l, %lse at %h : !kernel.tile<2xf32>, memref<4xf32>
  }
  kernel.return
}
