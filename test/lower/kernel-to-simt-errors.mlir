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

// A piece has a tile of rows for each set of four warps.
// -----

kernel.func @pieces_of_few_rows(%x: memref<64xf16>, %w: memref<192x64xf16>, %y: memref<192xf32>, %z: memref<1xf32>)
    axes(item = 2 @grid, warp = 4 @warp) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [192] columns at %i : memref<192x64xf16> -> !kernel.stream<192x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<192x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<192xf32, item: partial(sum)>
    // expected-error@+1 {{cannot take 192 rows a CTA in 2 pieces: each has a multiple of 64, and its body works on elements}}
    kernel.finish %m over item by ordered attributes {pieces = 2 : i64} : !kernel.tile<192xf32, item: partial(sum)> as %sum: !kernel.tile<192xf32> {
      kernel.write %sum, %y : !kernel.tile<192xf32>, memref<192xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @pieces_of_two_sets(%x: memref<64xf16>, %w: memref<256x64xf16>, %y: memref<256xf32>, %z: memref<1xf32>)
    axes(item = 2 @grid, warp = 8 @warp) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [256] columns at %i : memref<256x64xf16> -> !kernel.stream<256x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<256x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<256xf32, item: partial(sum)>
    // expected-error@+1 {{cannot take 256 rows a CTA in 4 pieces: each has a multiple of 128, and its body works on elements}}
    kernel.finish %m over item by ordered attributes {pieces = 4 : i64} : !kernel.tile<256xf32, item: partial(sum)> as %sum: !kernel.tile<256xf32> {
      kernel.write %sum, %y : !kernel.tile<256xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @pieces_of_a_whole(%x: memref<64xf16>, %w: memref<256x64xf16>, %y: memref<256xf32>, %z: memref<1xf32>)
    axes(item = 2 @grid, warp = 4 @warp) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [256] columns at %i : memref<256x64xf16> -> !kernel.stream<256x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<256x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<256xf32, item: partial(sum)>
    // expected-error@+1 {{cannot take 256 rows a CTA in 2 pieces: each has a multiple of 64, and its body works on elements}}
    kernel.finish %m over item by ordered attributes {pieces = 2 : i64} : !kernel.tile<256xf32, item: partial(sum)> as %sum: !kernel.tile<256xf32> {
      %f = kernel.fold add %sum : !kernel.tile<256xf32> -> !kernel.tile<1xf32>
      kernel.write %f, %z : !kernel.tile<1xf32>, memref<1xf32>
      kernel.write %sum, %y : !kernel.tile<256xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @finishers_of_a_whole(%x: memref<64xf16>, %w: memref<256x64xf16>, %y: memref<256xf32>, %z: memref<1xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [256] columns at %i : memref<256x64xf16> -> !kernel.stream<256x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<256x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<256xf32, item: partial(sum)>
    // expected-error@+1 {{cannot share out 256 rows a CTA to 2 finishers: each has a multiple of 4, and its body works on elements}}
    kernel.finish %m over item by ordered attributes {finishers = 2 : i64} : !kernel.tile<256xf32, item: partial(sum)> as %sum: !kernel.tile<256xf32> {
      %f = kernel.fold add %sum : !kernel.tile<256xf32> -> !kernel.tile<1xf32>
      kernel.write %f, %z : !kernel.tile<1xf32>, memref<1xf32>
      kernel.write %sum, %y : !kernel.tile<256xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @finishers_of_few_rows(%x: memref<64xf16>, %w: memref<200x64xf16>, %y: memref<200xf32>, %z: memref<1xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<16xf16>
    %s = kernel.load %w rows [200] columns at %i : memref<200x64xf16> -> !kernel.stream<200x16xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<200x16xf16>, !kernel.tile<16xf16> -> !kernel.tile<200xf32, item: partial(sum)>
    // expected-error@+1 {{cannot share out 200 rows a CTA to 4 finishers: each has a multiple of 4, and its body works on elements}}
    kernel.finish %m over item by ordered attributes {finishers = 4 : i64} : !kernel.tile<200xf32, item: partial(sum)> as %sum: !kernel.tile<200xf32> {
      kernel.write %sum, %y : !kernel.tile<200xf32>, memref<200xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @packed_rows(%x: memref<64xf16>, %w: memref<40x64xf16> {kernel.layout = "packed"}, %y: memref<40xf32>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [40] : memref<40x64xf16> -> !kernel.stream<40x64xf16, part: split(0)>
  // expected-error@+1 {{cannot stream packed weights as '!kernel.stream<40x64xf16, part: split(0)>': each CTA takes multiples of 8 rows and of 64 columns, and stacked weights have all rows}}
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<40x64xf16, part: split(0)>, !kernel.tile<64xf16> -> !kernel.tile<40xf32, part: split(0)>
  kernel.write %m, %y : !kernel.tile<40xf32, part: split(0)>, memref<40xf32>
  kernel.return
}

// -----

kernel.func @packed_columns(%x: memref<64xf16>, %w: memref<64x64xf16> {kernel.layout = "packed"}, %y: memref<64xf32>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16, part: split(1)>
  // expected-error@+1 {{cannot stream packed weights as '!kernel.stream<64x64xf16, part: split(1)>': each CTA takes multiples of 8 rows and of 64 columns, and stacked weights have all rows}}
  %m = kernel.matmul %s, %t slots 4 : !kernel.stream<64x64xf16, part: split(1)>, !kernel.tile<64xf16> -> !kernel.tile<64xf32, part: partial(sum)>
  %r = kernel.exchange reduce %m over "part" by push : !kernel.tile<64xf32, part: partial(sum)> -> !kernel.tile<64xf32>
  kernel.write %r, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}

// -----

kernel.func @packed_items(%x: memref<160xf16>, %w: memref<64x160xf16> {kernel.layout = "packed"}, %y: memref<64xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<160xf16> -> !kernel.tile<80xf16>
    %s = kernel.load %w rows [64] columns at %i : memref<64x160xf16> -> !kernel.stream<64x80xf16>
    // The second item's columns begin in the middle of a block.
    // expected-error@+1 {{cannot stream packed weights as '!kernel.stream<64x80xf16>': each CTA takes multiples of 8 rows and of 64 columns, and stacked weights have all rows}}
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x80xf16>, !kernel.tile<80xf16> -> !kernel.tile<64xf32, item: partial(sum)>
    kernel.finish %m over item by atomic : !kernel.tile<64xf32, item: partial(sum)> as %sum: !kernel.tile<64xf32> {
      kernel.write %sum, %y : !kernel.tile<64xf32>, memref<64xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @packed_overhang(%x: memref<64xf16>, %q: memref<100x64xf16> {kernel.layout = "packed"}, %k: memref<128x64xf16> {kernel.layout = "packed"}, %y: memref<256xf32>)
    axes(item = 2 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over item {
    %s = kernel.load %q, %k rows [64, 64] at %i : memref<100x64xf16>, memref<128x64xf16> -> !kernel.stream<128x64xf16>
    // expected-error@+1 {{cannot stream packed weights as '!kernel.stream<128x64xf16>': each CTA takes multiples of 8 rows and of 64 columns, and stacked weights have all rows}}
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<128x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<128xf32>
    kernel.write %m, %y at %i : !kernel.tile<128xf32>, memref<256xf32>
  }
  kernel.return
}

// -----

// Held tiles are for the time in which the kernel before runs.
// expected-error@+1 {{plan key 'held' needs pdl 1 or 2, and as first stream weights times one token, neither summed over items nor dealt by a work list}}
kernel.func @held(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<64xf16>) axes() plan(held = 1) {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  %m = kernel.matmul %s, %t slots 16 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf16>
  kernel.write %m, %y : !kernel.tile<64xf16>, memref<64xf16>
  kernel.return
}

// -----

// The first stream are cached tokens.
// expected-error@+1 {{plan key 'held' needs pdl 1 or 2}}
kernel.func @held_tokens(%q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %l: memref<1xi32>, %y: memref<64xf16>) axes(head = 1 @grid) plan(pdl = 1, held = 1) {
  kernel.for_items %h over head {
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %l at %h bound 128 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item -> <64, f16>
    %o = kernel.attend %t, %kv scale 1.25e-01 : !kernel.tile<64xf16>, <64, f16> -> !kernel.tile<1x66xf32>
    %r, %e = kernel.normalize %o : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
    kernel.write %r, %y at %h : !kernel.tile<64xf16>, memref<64xf16>
  }
  kernel.return
}

// -----

// Who has which item is not known before the kernel before has ended.
// expected-error@+1 {{neither summed over items nor dealt by a work list}}
kernel.func @held_work(%c: !kernel.cache<heads = 1, dim = 64, requests = 2, f16>, %l: memref<2xi32>, %w: memref<64x128xf16>, %x: memref<128xf16>) axes(head = 2 @grid) plan(pdl = 1, held = 1, tile_columns = 64) {
  %t = kernel.read %x : memref<128xf16> -> !kernel.tile<128xf16>
  %n = kernel.work_list %c tokens %l bound 64 : !kernel.cache<heads = 1, dim = 64, requests = 2, f16>, memref<2xi32>
  kernel.for_items %h, %share over head by %n {
    %s = kernel.load %w rows [64] : memref<64x128xf16> -> !kernel.stream<64x128xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x128xf16>, !kernel.tile<128xf16> -> !kernel.tile<64xf32>
  }
  kernel.return
}
