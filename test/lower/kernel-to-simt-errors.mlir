// RUN: cfc-opt %s --kernel-outline-producer --kernel-to-simt -split-input-file -verify-diagnostics

// expected-error@+1 {{has a ring of 1 stages; 2 to 64 are possible}}
kernel.func @ring(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<64xf16>) axes() plan(ring_stages = 1) {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  %m = kernel.matmul %s, %t slots 16 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf16>
  kernel.write %m, %y : !kernel.tile<64xf16>, memref<64xf16>
  kernel.return
}

// -----

kernel.func @slots(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<64xf32>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16, part: split(1)>
  // expected-error@+1 {{each of its 16 slots must hold as many blocks of 16 columns}}
  %m = kernel.matmul %s, %t slots 16 : !kernel.stream<64x64xf16, part: split(1)>, !kernel.tile<64xf16> -> !kernel.tile<64xf32, part: partial(sum)>
  %r = kernel.exchange reduce %m over "part" by push : !kernel.tile<64xf32, part: partial(sum)> -> !kernel.tile<64xf32>
  kernel.write %r, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}

// -----

kernel.func @workspace(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<64xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [64] columns at %i : memref<64x64xf16> -> !kernel.stream<64x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<64xf32, item: partial(sum)>
    // expected-error@+1 {{has no place in the workspace for its counters and partial sums}}
    kernel.finish %m over item by ordered : !kernel.tile<64xf32, item: partial(sum)> as %sum: !kernel.tile<64xf32> {
      kernel.write %sum, %y : !kernel.tile<64xf32>, memref<64xf32>
    }
  }
  kernel.return
}
