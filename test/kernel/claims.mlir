// A result's type says no more than what its operation gives: a state that nobody made would be a wrong result, or a
// buffer too small.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics

kernel.func @whole_weights(%x: memref<64xf16>, %w: memref<64x64xf16>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  // expected-error@+1 {{gives a whole result to every worker of `part`, whose weights are whole; its type says split over dimension 0}}
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32, part: split(0)>
  kernel.return
}

// -----

kernel.func @whole_sum(%x: memref<64xf16>, %w: memref<64x64xf16>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  // expected-error@+1 {{its type says a partial sum}}
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32, part: partial(sum)>
  kernel.return
}

// -----

kernel.func @order_of_rows(%x: memref<64xf16>, %w: memref<64x64xf16>) axes(a = 2 @cta, b = 4 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16, a: split(0), b: split(0)>
  // expected-error@+1 {{splits rows in an order of axes that its result does not have}}
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16, a: split(0), b: split(0)>, !kernel.tile<64xf16> -> !kernel.tile<64xf32, b: split(0), a: split(0)>
  kernel.return
}

// -----

kernel.func @order_of_columns(%x: memref<128xf16>, %w: memref<64x128xf16>) axes(a = 2 @cta, b = 4 @cta) plan() {
  %t = kernel.read %x : memref<128xf16> -> !kernel.tile<128xf16, b: split(0)>
  %s = kernel.load %w rows [64] : memref<64x128xf16> -> !kernel.stream<64x128xf16, a: split(1), b: split(1)>
  // expected-error@+1 {{needs %x split over dimension 0 in the order of axes that splits the columns}}
  %m = kernel.matmul %s, %t slots 8 : !kernel.stream<64x128xf16, a: split(1), b: split(1)>, !kernel.tile<128xf16, b: split(0)> -> !kernel.tile<64xf32, a: partial(sum), b: partial(sum)>
  kernel.return
}

// -----

kernel.func @partial_factor(%x: memref<64xf16>, %w: memref<64x64xf16>) axes(part = 4 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16, part: split(1)>
  %m = kernel.matmul %s, %t slots 4 : !kernel.stream<64x64xf16, part: split(1)>, !kernel.tile<64xf16> -> !kernel.tile<64xf16, part: partial(sum)>
  %u = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16, part: split(1)>
  // expected-error@+1 {{needs %x replicated over `part`; it is a partial sum: insert `kernel.exchange reduce … over part`}}
  %n = kernel.matmul %u, %m slots 4 : !kernel.stream<64x64xf16, part: split(1)>, !kernel.tile<64xf16, part: partial(sum)> -> !kernel.tile<64xf16, part: partial(sum)>
  kernel.return
}

// -----

kernel.func @columns_of_items(%x: memref<64xf16>, %w: memref<64x64xf16>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [64] columns at %i : memref<64x64xf16> -> !kernel.stream<64x32xf16>
    // expected-error@+1 {{takes columns of an item of `item`: its result is partial(sum) there}}
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<64xf32>
  }
  kernel.return
}

// -----

kernel.func @other_items(%x: memref<64xf16>, %w: memref<64x64xf16>) axes(item = 2 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  // expected-error@+1 {{gives a partial sum over `item` outside of kernel.for_items over it}}
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32, item: partial(sum)>
  kernel.return
}

// -----

kernel.func @twice(%x: memref<64xf16>) axes(part = 2 @cta) plan() {
  // expected-error@+1 {{has two states over the axis "part"}}
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16, part: split(0), part: split(0)>
  kernel.return
}

// -----

kernel.func @norm(%x: memref<64xf16>, %g: memref<64xf32>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{gives its result whole to every worker of `part`; its type says split over dimension 0}}
  %n = kernel.rms_norm %t, %g eps 1.0e-5 : !kernel.tile<64xf16>, memref<64xf32> -> !kernel.tile<64xf16, part: split(0)>
  kernel.return
}

// -----

kernel.func @short_gain(%x: memref<64xf16>, %g: memref<32xf32>) axes() plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{by a gain of 32 elements}}
  %n = kernel.rms_norm %t, %g eps 1.0e-5 : !kernel.tile<64xf16>, memref<32xf32> -> !kernel.tile<64xf16>
  kernel.return
}

// -----

kernel.func @view(%x: memref<64xf16>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{gives its view whole to every worker of `part`}}
  %e = kernel.extract %t from 0 : !kernel.tile<64xf16> -> !kernel.tile<32xf16, part: split(0)>
  kernel.return
}

// -----

kernel.func @odd_view(%x: memref<65xf16>, %w: memref<64x64xf16>) axes() plan() {
  %t = kernel.read %x : memref<65xf16> -> !kernel.tile<65xf16>
  %e = kernel.extract %t from 1 : !kernel.tile<65xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  // expected-error@+1 {{reads %x in pairs; it begins at element 1 of its tile, an even one is needed}}
  %m = kernel.matmul %s, %e slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
  kernel.return
}

// -----

kernel.func @rope_shape(%x: memref<64xf16>, %table: memref<8x16xf32>, %pos: memref<1xi32>) axes() plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{keeps its shape}}
  %r = kernel.rope half_split %t, %table position %pos : !kernel.tile<64xf16>, memref<8x16xf32>, memref<1xi32> -> !kernel.tile<32xf16>
  kernel.return
}

// -----

kernel.func @rope_position(%x: memref<64xf16>, %table: memref<8x16xf32>, %pos: memref<1xi64>) axes() plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{needs the position in memory of i32, not 'memref<1xi64>'}}
  %r = kernel.rope half_split %t, %table position %pos : !kernel.tile<64xf16>, memref<8x16xf32>, memref<1xi64> -> !kernel.tile<64xf16>
  kernel.return
}

// -----

kernel.func @fold(%x: memref<64xf16>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{gives the whole result to every worker of `part`, whose tile is whole; its type says a partial sum}}
  %f = kernel.fold add %t : !kernel.tile<64xf16> -> !kernel.tile<1xf32, part: partial(sum)>
  kernel.return
}

// -----

kernel.func @softmax_of_whole(%q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>) axes(part = 2 @cta) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  %kv = kernel.load_cache %c tokens %len bound 100 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32> -> !kernel.kv_stream<64, f16>
  // expected-error@+1 {{gives a whole softmax to every worker of `part`, who attend to the same tokens}}
  %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, part: partial(softmax)>
  kernel.return
}

// -----

kernel.func @kv_axis(%q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>) axes(part = 2 @cta) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{names an unknown axis "parts"}}
  %kv = kernel.load_cache %c tokens %len bound 100 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32> -> !kernel.kv_stream<64, f16, parts: split(0)>
  %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16, parts: split(0)> -> !kernel.tile<1x66xf32, part: partial(softmax)>
  kernel.return
}

// -----

kernel.func @rounded_softmax(%q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>) axes(part = 2 @cta) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  %kv = kernel.load_cache %c tokens %len bound 100 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32> -> !kernel.kv_stream<64, f16, part: split(0)>
  %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16, part: split(0)> -> !kernel.tile<1x66xf32, part: partial(softmax)>
  // expected-error@+1 {{cannot round a partial softmax: its summands are f32}}
  %h = kernel.cast %p : !kernel.tile<1x66xf32, part: partial(softmax)> -> !kernel.tile<1x66xf16, part: partial(softmax)>
  kernel.return
}

// -----

kernel.func @normalize_shape(%x: memref<66xf32>) axes() plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  // expected-error@+1 {{gives 64 elements and 1 of lse}}
  %o, %l = kernel.normalize %t : !kernel.tile<1x66xf32> -> !kernel.tile<32xf32>, !kernel.tile<1xf32>
  kernel.return
}

// -----

kernel.func @bulk_of_parts(%x: memref<32xf16>) axes(a = 2 @cta, b = 4 @cta) plan() {
  %t = kernel.read %x : memref<32xf16> -> !kernel.tile<32xf16, a: split(0), b: split(0)>
  // expected-error@+1 {{sends parts of 8 bytes; bulk copies need multiples of 16}}
  %g = kernel.exchange gather %t over "b" by bulk : !kernel.tile<32xf16, a: split(0), b: split(0)> -> !kernel.tile<32xf16, a: split(0)>
  kernel.return
}

// -----

kernel.func @element(%x: memref<64xf16>) axes() plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{has a tile of 'i32'; f16, bf16 and f32 are possible}}
  %e = kernel.elementwise add %t, %t : !kernel.tile<64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xi32>
  kernel.return
}
