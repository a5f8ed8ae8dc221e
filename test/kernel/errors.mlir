// What a kernel's verifier says; where an exchange is missing it names it.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics

kernel.func @missing_gather(%x: memref<64xf16>, %w: memref<64x64xf16>, %table: memref<8x16xf32>, %pos: memref<1xi32>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16, part: split(0)>
  // expected-error@+1 {{needs %x replicated over `part`; it is split over dimension 0: insert `kernel.exchange gather … over part`}}
  %r = kernel.rope half_split %t, %table position %pos : !kernel.tile<64xf16, part: split(0)>, memref<8x16xf32>, memref<1xi32> -> !kernel.tile<64xf16>
  kernel.return
}

// -----

kernel.func @missing_reduce(%x: memref<64xf32>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32, part: split(0)>
  %f = kernel.fold max %t : !kernel.tile<64xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(max)>
  // expected-error@+1 {{needs the tile replicated over `part`; it is a partial max: insert `kernel.exchange reduce … over part`}}
  kernel.write %f, %x : !kernel.tile<1xf32, part: partial(max)>, memref<64xf32>
  kernel.return
}

// -----

kernel.func @wrong_kind(%x: memref<64xf32>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32, part: split(0)>
  // expected-error@+1 {{reduces a partial value over `part`; it is split over dimension 0}}
  %g = kernel.exchange reduce %t over "part" by push : !kernel.tile<64xf32, part: split(0)> -> !kernel.tile<64xf32>
  kernel.return
}

// -----

kernel.func @indivisible(%x: memref<66xf32>) axes(part = 4 @cta) plan() {
  // expected-error@+1 {{splits 66 elements over the 4 workers of "part"; that does not divide}}
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<66xf32, part: split(0)>
  kernel.return
}

// -----

// expected-error@+1 {{has 32 CTAs a cluster; 16 are the most}}
kernel.func @cluster(%x: memref<64xf32>) axes(a = 4 @cta, b = 8 @cta) plan() {
  kernel.return
}

// -----

// expected-error@+1 {{axis "a" has size 3; powers of two are possible}}
kernel.func @odd(%x: memref<64xf32>) axes(a = 3 @cta) plan() {
  kernel.return
}

// -----

// expected-error@+1 {{has an unknown plan key 'ring_stage'; known are ring_stages, in_flight, prefetch, prefetch_later, held, tile_columns, ctas_per_sm, clusters, lets_next and pdl}}
kernel.func @key(%x: memref<64xf32>) axes() plan(ring_stage = 3) {
  kernel.return
}

// -----

// expected-error@+1 {{plan key 'in_flight' is 5 with ring_stages = 3; no more tiles are copied at a time}}
kernel.func @flight(%x: memref<64xf32>) axes(warp = 8 @warp) plan(ring_stages = 3, in_flight = 5) {
  kernel.return
}

// -----

// A ring of 3 stages is one of 4 where two sets of warps take tiles in turn.
kernel.func @rounded(%x: memref<64xf32>) axes(warp = 8 @warp) plan(ring_stages = 3, in_flight = 4) {
  kernel.return
}

// -----

// expected-error@+1 {{unknown level '@}}
kernel.func @level(%x: memref<64xf32>) axes(a = 2 @block) plan() {
  kernel.return
}

// -----

kernel.func @no_axis(%x: memref<64xf32>) axes() plan() {
  // expected-error@+1 {{needs a grid axis of its kernel; 'head' is none}}
  kernel.for_items %h over head {
  }
  kernel.return
}

// -----

kernel.func @unknown_axis(%x: memref<64xf32>) axes() plan() {
  // expected-error@+1 {{names an unknown axis "part"}}
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32, part: split(0)>
  kernel.return
}

// -----

kernel.func @twice(%x: memref<64xf16>, %w: memref<64x64xf16>) axes() plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{gives a stream that must be used exactly once}}
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  %a = kernel.matmul %s, %t slots 16 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
  %b = kernel.matmul %s, %t slots 16 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
  kernel.return
}

// -----

kernel.func @shapes(%x: memref<64xf16>, %w: memref<64x32xf16>) axes() plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x32xf16> -> !kernel.stream<64x32xf16>
  // expected-error@+1 {{the shapes do not fit}}
  %a = kernel.matmul %s, %t slots 16 : !kernel.stream<64x32xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
  kernel.return
}

// -----

kernel.func @unfinished(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<64xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [64] columns at %i : memref<64x64xf16> -> !kernel.stream<64x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<64xf32, item: partial(sum)>
    // expected-error@+1 {{needs the tile replicated over `item`; it is a partial sum: insert `kernel.finish … over item`}}
    kernel.write %m, %y : !kernel.tile<64xf32, item: partial(sum)>, memref<64xf32>
  }
  kernel.return
}

// -----

kernel.func @in_finish(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<64xf32>) axes(item = 2 @grid, part = 2 @cta) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [64] columns at %i : memref<64x64xf16> -> !kernel.stream<64x32xf16, part: split(0)>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x32xf16, part: split(0)>, !kernel.tile<32xf16> -> !kernel.tile<64xf32, part: split(0), item: partial(sum)>
    kernel.finish %m over item by ordered : !kernel.tile<64xf32, part: split(0), item: partial(sum)> as %sum: !kernel.tile<64xf32, part: split(0)> {
      // expected-error@+1 {{cannot stand in kernel.finish: CTAs of a cluster finish at different times}}
      %g = kernel.exchange gather %sum over "part" by push : !kernel.tile<64xf32, part: split(0)> -> !kernel.tile<64xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @three_pieces(%x: memref<64xf16>, %w: memref<256x64xf16>, %y: memref<256xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [256] columns at %i : memref<256x64xf16> -> !kernel.stream<256x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<256x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<256xf32, item: partial(sum)>
    // expected-error@+1 {{has 3 pieces; 2, 4, 8 or 16 are possible, of a matmul's rows by ordered}}
    kernel.finish %m over item by ordered attributes {pieces = 3 : i64} : !kernel.tile<256xf32, item: partial(sum)> as %sum: !kernel.tile<256xf32> {
      kernel.write %sum, %y : !kernel.tile<256xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @no_pieces(%x: memref<64xf16>, %w: memref<256x64xf16>, %y: memref<256xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [256] columns at %i : memref<256x64xf16> -> !kernel.stream<256x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<256x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<256xf32, item: partial(sum)>
    // expected-error@+1 {{has 0 pieces; 2, 4, 8 or 16 are possible, of a matmul's rows by ordered}}
    kernel.finish %m over item by ordered attributes {pieces = 0 : i64} : !kernel.tile<256xf32, item: partial(sum)> as %sum: !kernel.tile<256xf32> {
      kernel.write %sum, %y : !kernel.tile<256xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @many_pieces(%x: memref<64xf16>, %w: memref<256x64xf16>, %y: memref<256xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [256] columns at %i : memref<256x64xf16> -> !kernel.stream<256x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<256x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<256xf32, item: partial(sum)>
    // expected-error@+1 {{has 32 pieces; 2, 4, 8 or 16 are possible, of a matmul's rows by ordered}}
    kernel.finish %m over item by ordered attributes {pieces = 32 : i64} : !kernel.tile<256xf32, item: partial(sum)> as %sum: !kernel.tile<256xf32> {
      kernel.write %sum, %y : !kernel.tile<256xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @atomic_pieces(%x: memref<64xf16>, %w: memref<256x64xf16>, %y: memref<256xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [256] columns at %i : memref<256x64xf16> -> !kernel.stream<256x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<256x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<256xf32, item: partial(sum)>
    // expected-error@+1 {{has 4 pieces; 2, 4, 8 or 16 are possible, of a matmul's rows by ordered}}
    kernel.finish %m over item by atomic attributes {pieces = 4 : i64} : !kernel.tile<256xf32, item: partial(sum)> as %sum: !kernel.tile<256xf32> {
      kernel.write %sum, %y : !kernel.tile<256xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @atomic_finishers(%x: memref<64xf16>, %w: memref<256x64xf16>, %y: memref<256xf32>, %z: memref<1xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [256] columns at %i : memref<256x64xf16> -> !kernel.stream<256x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<256x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<256xf32, item: partial(sum)>
    // expected-error@+1 {{has finishers: they take a matmul's rows by ordered, in one piece}}
    kernel.finish %m over item by atomic attributes {finishers = 2 : i64} : !kernel.tile<256xf32, item: partial(sum)> as %sum: !kernel.tile<256xf32> {
      kernel.write %sum, %y : !kernel.tile<256xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @finishers_of_pieces(%x: memref<64xf16>, %w: memref<256x64xf16>, %y: memref<256xf32>, %z: memref<1xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [256] columns at %i : memref<256x64xf16> -> !kernel.stream<256x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<256x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<256xf32, item: partial(sum)>
    // expected-error@+1 {{has finishers: they take a matmul's rows by ordered, in one piece}}
    kernel.finish %m over item by ordered attributes {finishers = 2 : i64, pieces = 2 : i64} : !kernel.tile<256xf32, item: partial(sum)> as %sum: !kernel.tile<256xf32> {
      kernel.write %sum, %y : !kernel.tile<256xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @many_finishers(%x: memref<64xf16>, %w: memref<256x64xf16>, %y: memref<256xf32>, %z: memref<1xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<16xf16>
    %s = kernel.load %w rows [256] columns at %i : memref<256x64xf16> -> !kernel.stream<256x16xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<256x16xf16>, !kernel.tile<16xf16> -> !kernel.tile<256xf32, item: partial(sum)>
    // expected-error@+1 {{has 8 finishers of the sum over 4 items; up to 4 are possible, of less than 2^16 items}}
    kernel.finish %m over item by ordered attributes {finishers = 8 : i64} : !kernel.tile<256xf32, item: partial(sum)> as %sum: !kernel.tile<256xf32> {
      kernel.write %sum, %y : !kernel.tile<256xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @negative_finishers(%x: memref<64xf16>, %w: memref<256x64xf16>, %y: memref<256xf32>, %z: memref<1xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [256] columns at %i : memref<256x64xf16> -> !kernel.stream<256x32xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<256x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<256xf32, item: partial(sum)>
    // expected-error@+1 {{has -1 finishers of the sum over 2 items; up to 2 are possible, of less than 2^16 items}}
    kernel.finish %m over item by ordered attributes {finishers = -1 : i64} : !kernel.tile<256xf32, item: partial(sum)> as %sum: !kernel.tile<256xf32> {
      kernel.write %sum, %y : !kernel.tile<256xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @pieces_of_all(%x: memref<64xf32>, %y: memref<128xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32>
    // expected-error@+1 {{has 2 pieces; 2, 4, 8 or 16 are possible, of a matmul's rows by ordered}}
    kernel.finish gather %t over item by ordered attributes {pieces = 2 : i64} : !kernel.tile<64xf32> as %all: !kernel.tile<128xf32> {
      kernel.write %all, %y : !kernel.tile<128xf32>, memref<128xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @sync_in_loop(%x: memref<64xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    // expected-error@+1 {{stands outside of loops: CTAs take different numbers of items}}
    kernel.grid_sync
  }
  kernel.return
}

// -----

// A write and a read of the same memory need a grid_sync between them, whichever comes first.
kernel.func @unordered(%x: memref<64xf32>, %y: memref<64xf32>, %z: memref<64xf32>) axes() plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32>
  kernel.write %t, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.grid_sync
  %u = kernel.read %y : memref<64xf32> -> !kernel.tile<64xf32>
  // expected-error@+1 {{writes memory that this kernel also reads: other CTAs may read before or after; write to another tensor, put a kernel.grid_sync between, or read in a kernel of its own}}
  kernel.write %u, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}

// -----

// Gains are read when the kernel starts: a barrier does not help.
kernel.func @written_gain(%x: memref<64xf32>, %g: memref<64xf32>, %y: memref<64xf32>) axes() plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32>
  // expected-error@+1 {{writes memory that this kernel also reads, by kernel.rms_norm ahead of all barriers: write to another tensor, or read it as a tile behind a kernel.grid_sync or in a kernel of its own}}
  kernel.write %t, %g : !kernel.tile<64xf32>, memref<64xf32>
  kernel.grid_sync
  %n = kernel.rms_norm %t, %g eps 1.0e-6 : !kernel.tile<64xf32>, memref<64xf32> -> !kernel.tile<64xf32>
  kernel.write %n, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}

// -----

kernel.func @no_gain(%x: memref<64xf32>, %y: memref<64xf32>) axes() plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32>
  // expected-error@+1 {{has no gain; where it is centered it need not have one}}
  %n = kernel.rms_norm %t eps 1.0e-6 : !kernel.tile<64xf32> -> !kernel.tile<64xf32>
  kernel.write %n, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}

// -----

kernel.func @scaled_product(%x: memref<64xf32>, %y: memref<64xf32>) axes() plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32>
  // expected-error@+1 {{has a finite scale where it adds, else none}}
  %n = kernel.elementwise mul %t, %t {scale = 0.5 : f64} : !kernel.tile<64xf32>, !kernel.tile<64xf32> -> !kernel.tile<64xf32>
  kernel.write %n, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}
