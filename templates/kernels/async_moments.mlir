// Sum, sum of squares and maximum of rows over 16 CTAs: three reductions of one number each, by stores that count.
//
// The smallest payload there is: 4 bytes, stored by one thread of each CTA in its 15 peers. A barrier of each reduction
// expects 60 bytes; when they are there all threads go on. The three share one barrier on which peers say that they are
// done with the row before.
//
//   cfc run async_moments.mlir --device=emu --input x=x.npy --output out
kernel.func @async_moments(%x: memref<4x400xf32>, %sum: memref<4xf32>, %squares: memref<4xf32>, %largest: memref<4xf32>)
    axes(row = 4 @grid, part = 16 @cta) plan() {
  kernel.for_items %r over row {
    %t = kernel.read %x at %r : memref<4x400xf32> -> !kernel.tile<400xf32, part: split(0)>
    %q = kernel.elementwise mul %t, %t : !kernel.tile<400xf32, part: split(0)>, !kernel.tile<400xf32, part: split(0)> -> !kernel.tile<400xf32, part: split(0)>
    %a = kernel.fold add %t : !kernel.tile<400xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(sum)>
    %b = kernel.fold add %q : !kernel.tile<400xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(sum)>
    %c = kernel.fold max %t : !kernel.tile<400xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(max)>
    %as = kernel.exchange reduce %a over "part" by async : !kernel.tile<1xf32, part: partial(sum)> -> !kernel.tile<1xf32>
    %bs = kernel.exchange reduce %b over "part" by async : !kernel.tile<1xf32, part: partial(sum)> -> !kernel.tile<1xf32>
    %cs = kernel.exchange reduce %c over "part" by async : !kernel.tile<1xf32, part: partial(max)> -> !kernel.tile<1xf32>
    kernel.write %as, %sum at %r : !kernel.tile<1xf32>, memref<4xf32>
    kernel.write %bs, %squares at %r : !kernel.tile<1xf32>, memref<4xf32>
    kernel.write %cs, %largest at %r : !kernel.tile<1xf32>, memref<4xf32>
  }
  kernel.return
}
