// What the verifier says of exchanges: which state each takes, what it gives, and which exchange is meant instead.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics

kernel.func @gather_of_sum(%x: memref<64xf32>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32, part: split(0)>
  %f = kernel.fold add %t : !kernel.tile<64xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(sum)>
  // expected-error@+1 {{gathers a split value over `part`; it is a partial sum: `reduce` or `reduce_scatter` takes that}}
  %g = kernel.exchange gather %f over "part" by push : !kernel.tile<1xf32, part: partial(sum)> -> !kernel.tile<1xf32>
  kernel.return
}

// -----

kernel.func @scatter_of_parts(%x: memref<64xf32>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32, part: split(0)>
  // expected-error@+1 {{reduces a partial value over `part`; it is split over dimension 0: `gather` or `all_to_all` takes that}}
  %g = kernel.exchange reduce_scatter %t over "part" by push : !kernel.tile<64xf32, part: split(0)> -> !kernel.tile<64xf32, part: split(0)>
  kernel.return
}

// -----

kernel.func @whole(%x: memref<64xf32>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32>
  // expected-error@+1 {{moves parts of a split value over `part`; it is replicated: leave the exchange out}}
  %g = kernel.exchange all_to_all %t over "part" by push : !kernel.tile<64xf32> -> !kernel.tile<64xf32>
  kernel.return
}

// -----

kernel.func @scatter_gives(%x: memref<64xf16>, %w: memref<64x64xf16>) axes(part = 4 @cta, warp = 4 @warp) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16, part: split(1)>
  %m = kernel.matmul %s, %t slots 4 : !kernel.stream<64x64xf16, part: split(1)>, !kernel.tile<64xf16> -> !kernel.tile<64xf32, part: partial(sum)>
  // expected-error@+1 {{gives '!kernel.tile<64xf32, part: split(0)>', not '!kernel.tile<64xf32>'}}
  %r = kernel.exchange reduce_scatter %m over "part" by push : !kernel.tile<64xf32, part: partial(sum)> -> !kernel.tile<64xf32>
  kernel.return
}

// -----

kernel.func @indivisible(%x: memref<64xf16>, %w: memref<66x64xf16>) axes(part = 4 @cta, warp = 4 @warp) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [66] : memref<66x64xf16> -> !kernel.stream<66x64xf16, part: split(1)>
  %m = kernel.matmul %s, %t slots 4 : !kernel.stream<66x64xf16, part: split(1)>, !kernel.tile<64xf16> -> !kernel.tile<66xf32, part: partial(sum)>
  // expected-error@+1 {{splits 66 elements over the 4 workers of "part"; that does not divide}}
  %r = kernel.exchange reduce_scatter %m over "part" by push : !kernel.tile<66xf32, part: partial(sum)> -> !kernel.tile<66xf32, part: split(0)>
  kernel.return
}

// -----

kernel.func @turned_vector(%x: memref<64xf32>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32, part: split(0)>
  // expected-error@+1 {{turns the split of a matrix, tile<rows x columns x …>, not of '!kernel.tile<64xf32, part: split(0)>'}}
  %g = kernel.exchange all_to_all %t over "part" by push : !kernel.tile<64xf32, part: split(0)> -> !kernel.tile<64xf32, part: split(0)>
  kernel.return
}

// -----

kernel.func @turned_twice(%x: memref<8x64xf32>) axes(a = 2 @cta, b = 4 @cta) plan() {
  %t = kernel.read %x : memref<8x64xf32> -> !kernel.tile<8x64xf32, a: split(0), b: split(0)>
  // expected-error@+1 {{moves parts of a value that is split over `a` too: insert `kernel.exchange gather … over a` before it}}
  %g = kernel.exchange all_to_all %t over "b" by push : !kernel.tile<8x64xf32, a: split(0), b: split(0)> -> !kernel.tile<8x64xf32, a: split(0), b: split(1)>
  kernel.return
}

// -----

kernel.func @columns(%x: memref<8x64xf32>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<8x64xf32> -> !kernel.tile<8x64xf32, part: split(1)>
  // expected-error@+1 {{gathers dimension 0: insert `kernel.exchange all_to_all … over part` before it}}
  %g = kernel.exchange gather %t over "part" by push : !kernel.tile<8x64xf32, part: split(1)> -> !kernel.tile<8x64xf32>
  kernel.return
}

// -----

kernel.func @halving_rows(%x: memref<8x64xf32>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<8x64xf32> -> !kernel.tile<8x64xf32, part: split(0)>
  // expected-error@+1 {{goes by push, bulk or async: a butterfly would send every part log2 N times}}
  %g = kernel.exchange all_to_all %t over "part" by butterfly : !kernel.tile<8x64xf32, part: split(0)> -> !kernel.tile<8x64xf32, part: split(1)>
  kernel.return
}

// -----

kernel.func @odd(%x: memref<4xf16>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<4xf16> -> !kernel.tile<4xf16, part: split(0)>
  // expected-error@+1 {{sends parts of 2 bytes; async stores need multiples of 4}}
  %g = kernel.exchange gather %t over "part" by async : !kernel.tile<4xf16, part: split(0)> -> !kernel.tile<4xf16>
  kernel.return
}

// -----

kernel.func @thin_columns(%x: memref<8x16xf32>) axes(part = 8 @cta) plan() {
  %t = kernel.read %x : memref<8x16xf32> -> !kernel.tile<8x16xf32, part: split(0)>
  // expected-error@+1 {{sends parts of 8 bytes; bulk copies need multiples of 16}}
  %g = kernel.exchange all_to_all %t over "part" by bulk : !kernel.tile<8x16xf32, part: split(0)> -> !kernel.tile<8x16xf32, part: split(1)>
  kernel.return
}

// -----

kernel.func @over_the_grid(%x: memref<64xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf32> -> !kernel.tile<16xf32>
    // expected-error@+1 {{goes over a cta axis of its kernel; 'item' is none (the grid: kernel.finish)}}
    %g = kernel.exchange gather %t over "item" by push : !kernel.tile<16xf32> -> !kernel.tile<64xf32>
  }
  kernel.return
}

// -----

kernel.func @over_warps(%x: memref<64xf32>) axes(warp = 4 @warp) plan() {
  // expected-error@+1 {{distributes a value over the warp axis "warp"; warps share their CTA's tiles}}
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32, warp: split(0)>
  kernel.return
}

// -----

kernel.func @two_states(%x: memref<8x64xf32>) axes(part = 4 @cta) plan() {
  %a = kernel.read %x : memref<8x64xf32> -> !kernel.tile<8x64xf32, part: split(0)>
  %b = kernel.read %x : memref<8x64xf32> -> !kernel.tile<8x64xf32, part: split(1)>
  // expected-error@+1 {{needs operands and result in one state over every axis: insert `kernel.exchange all_to_all … over part`}}
  %g = kernel.elementwise add %a, %b : !kernel.tile<8x64xf32, part: split(0)>, !kernel.tile<8x64xf32, part: split(1)> -> !kernel.tile<8x64xf32, part: split(0)>
  kernel.return
}

// -----

kernel.func @sum_and_part(%x: memref<64xf16>, %w: memref<64x64xf16>) axes(part = 4 @cta, warp = 4 @warp) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %p = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16, part: split(0)>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16, part: split(1)>
  %m = kernel.matmul %s, %t slots 4 : !kernel.stream<64x64xf16, part: split(1)>, !kernel.tile<64xf16> -> !kernel.tile<64xf32, part: partial(sum)>
  // expected-error@+1 {{needs operands and result in one state over every axis: insert `kernel.exchange reduce_scatter … over part`}}
  %r = kernel.elementwise add %p, %m : !kernel.tile<64xf16, part: split(0)>, !kernel.tile<64xf32, part: partial(sum)> -> !kernel.tile<64xf32, part: split(0)>
  kernel.return
}

// -----

kernel.func @finish_whole(%x: memref<64xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf32> -> !kernel.tile<16xf32>
    // expected-error@+1 {{reduces a partial sum or max over `item`; it is whole in every item: `gather` collects that}}
    kernel.finish %t over item by ordered : !kernel.tile<16xf32> as %all: !kernel.tile<64xf32> {
    }
  }
  kernel.return
}

// -----

kernel.func @finish_parts(%x: memref<64xf32>) axes(item = 4 @grid, part = 2 @cta) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf32> -> !kernel.tile<16xf32, part: split(0)>
    // expected-error@+1 {{needs what it gathers replicated over `part`; it is split over dimension 0: insert `kernel.exchange gather … over part`}}
    kernel.finish gather %t over item by ordered : !kernel.tile<16xf32, part: split(0)> as %all: !kernel.tile<64xf32, part: split(0)> {
    }
  }
  kernel.return
}

// -----

kernel.func @finish_gathered_sum(%x: memref<64xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf32> -> !kernel.tile<16xf32>
    %f = kernel.fold add %t : !kernel.tile<16xf32> -> !kernel.tile<1xf32, item: partial(sum)>
    // expected-error@+1 {{gathers what each item has whole; it is a summand over `item`: leave out `gather`}}
    kernel.finish gather %f over item by ordered : !kernel.tile<1xf32, item: partial(sum)> as %all: !kernel.tile<4xf32> {
    }
  }
  kernel.return
}

// -----

kernel.func @finish_gathers(%x: memref<64xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf32> -> !kernel.tile<16xf32>
    // expected-error@+1 {{has one block argument, '!kernel.tile<64xf32>'}}
    kernel.finish gather %t over item by ordered : !kernel.tile<16xf32> as %all: !kernel.tile<16xf32> {
    }
  }
  kernel.return
}

// -----

kernel.func @atomic_max(%x: memref<64xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf32> -> !kernel.tile<16xf32>
    %f = kernel.fold max %t : !kernel.tile<16xf32> -> !kernel.tile<1xf32, item: partial(max)>
    // expected-error@+1 {{takes a max by ordered: atomic adds}}
    kernel.finish %f over item by atomic : !kernel.tile<1xf32, item: partial(max)> as %all: !kernel.tile<1xf32> {
    }
  }
  kernel.return
}

// -----

kernel.func @fold_kind(%x: memref<64xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf32> -> !kernel.tile<16xf32>
    // expected-error@+1 {{folds over the items of `item`: its result is partial(max) there}}
    %f = kernel.fold max %t : !kernel.tile<16xf32> -> !kernel.tile<1xf32, item: partial(sum)>
  }
  kernel.return
}

// -----

kernel.func @scatter_is_no_gather(%x: memref<64xf32>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32, part: split(0)>
  // expected-error@+1 {{goes by push, butterfly, bulk or async: scatter is a way to reduce}}
  %g = kernel.exchange gather %t over "part" by scatter : !kernel.tile<64xf32, part: split(0)> -> !kernel.tile<64xf32>
  kernel.return
}

// -----

kernel.func @scatter_of_one(%x: memref<64xf32>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32, part: split(0)>
  %f = kernel.fold add %t : !kernel.tile<64xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(sum)>
  // expected-error@+1 {{by scatter merges a part for each of the 4 workers of `part`, which does not divide '!kernel.tile<1xf32, part: partial(sum)>'}}
  %g = kernel.exchange reduce %f over "part" by scatter : !kernel.tile<1xf32, part: partial(sum)> -> !kernel.tile<1xf32>
  kernel.return
}

// -----

kernel.func @scatter_of_halves(%x: memref<64xf16>, %w: memref<64x64xf16>) axes(part = 4 @cta, warp = 4 @warp) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16, part: split(1)>
  %m = kernel.matmul %s, %t slots 4 : !kernel.stream<64x64xf16, part: split(1)>, !kernel.tile<64xf16> -> !kernel.tile<64xf16, part: partial(sum)>
  // expected-error@+1 {{merges sums and maxima of f32 by scatter, not '!kernel.tile<64xf16, part: partial(sum)>'}}
  %r = kernel.exchange reduce %m over "part" by scatter : !kernel.tile<64xf16, part: partial(sum)> -> !kernel.tile<64xf16>
  kernel.return
}
