// What can be addressed, what stays inside of memory, and what does not race with other clusters.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics

kernel.func @in_place(%x: memref<64xf32>) axes() plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32>
  %s = kernel.elementwise add %t, %t : !kernel.tile<64xf32>, !kernel.tile<64xf32> -> !kernel.tile<64xf32>
  // expected-error@+1 {{writes memory that this kernel also reads: other CTAs may read before or after}}
  kernel.write %s, %x : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}

// -----

// expected-error@+1 {{has two arguments with the name "x"}}
kernel.func @alias(%x: memref<64xf32>, %y: memref<64xf32> {kernel.name = "x"}) axes() plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32>
  kernel.write %t, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}

// -----

kernel.func @every_item(%x: memref<64xf32>, %y: memref<64xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf32> -> !kernel.tile<16xf32>
    // expected-error@+1 {{would write every item to the same elements: give `at %item`}}
    kernel.write %t, %y : !kernel.tile<16xf32>, memref<64xf32>
  }
  kernel.return
}

// -----

kernel.func @finished_item(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<256xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<16xf16>
    %s = kernel.load %w rows [64] columns at %i : memref<64x64xf16> -> !kernel.stream<64x16xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x16xf16>, !kernel.tile<16xf16> -> !kernel.tile<64xf32, item: partial(sum)>
    kernel.finish %m over item by ordered : !kernel.tile<64xf32, item: partial(sum)> as %sum: !kernel.tile<64xf32> {
      // expected-error@+1 {{in kernel.finish writes the sum over all items: leave out `at`}}
      kernel.write %sum, %y at %i : !kernel.tile<64xf32>, memref<256xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @finished_stream(%x: memref<64xf16>, %w: memref<64x64xf16>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<16xf16>
    %s = kernel.load %w rows [64] columns at %i : memref<64x64xf16> -> !kernel.stream<64x16xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x16xf16>, !kernel.tile<16xf16> -> !kernel.tile<64xf32, item: partial(sum)>
    kernel.finish %m over item by ordered : !kernel.tile<64xf32, item: partial(sum)> as %sum: !kernel.tile<64xf32> {
      %u = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
      // expected-error@+1 {{cannot stand in kernel.finish: streams are fed before it is known which CTA finishes}}
      %n = kernel.matmul %u, %sum slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf32> -> !kernel.tile<64xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @columns_past(%w: memref<64x64xf16>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    // expected-error@+1 {{takes 24 columns for each of 4 items; 'memref<64x64xf16>' has 64}}
    %s = kernel.load %w rows [64] columns at %i : memref<64x64xf16> -> !kernel.stream<64x24xf16>
  }
  kernel.return
}

// -----

kernel.func @narrow_columns(%w: memref<64x64xf16>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    // expected-error@+1 {{streams 12 columns; multiples of 8 (16 bytes) are possible}}
    %s = kernel.load %w rows [64] columns at %i : memref<64x64xf16> -> !kernel.stream<64x12xf16>
  }
  kernel.return
}

// -----

kernel.func @no_rows(%w: memref<64x64xf16>) axes() plan() {
  // expected-error@+1 {{takes 0 rows of 'memref<64x64xf16>'; at least 1 is needed}}
  %s = kernel.load %w, %w rows [64, 0] : memref<64x64xf16>, memref<64x64xf16> -> !kernel.stream<64x64xf16>
  kernel.return
}

// -----

kernel.func @heads(%q: memref<64xf16>, %c: !kernel.cache<heads = 2, dim = 64, f16>, %len: memref<1xi32>) axes(item = 4 @grid) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over item {
    // expected-error@+1 {{takes a head for each of 4 items}}
    %kv = kernel.load_cache %c tokens %len at %i bound 100 : !kernel.cache<heads = 2, dim = 64, f16>, memref<1xi32>, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32>
  }
  kernel.return
}

// -----

kernel.func @bound(%q: memref<64xf16>, %c: !kernel.cache<heads = 2, dim = 64, f16>, %len: memref<1xi32>) axes() plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{has a bound of -1 tokens}}
  %kv = kernel.load_cache %c tokens %len bound -1 : !kernel.cache<heads = 2, dim = 64, f16>, memref<1xi32> -> !kernel.kv_stream<64, f16>
  %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @length(%q: memref<64xf16>, %c: !kernel.cache<heads = 2, dim = 64, f16>, %len: memref<1xi64>) axes() plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{needs the number of tokens in memory of i32}}
  %kv = kernel.load_cache %c tokens %len bound 100 : !kernel.cache<heads = 2, dim = 64, f16>, memref<1xi64> -> !kernel.kv_stream<64, f16>
  %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @integers(%x: memref<64xi32>) axes() plan() {
  // expected-error@+1 {{reads floating-point memory, not 'memref<64xi32>'}}
  %t = kernel.read %x : memref<64xi32> -> !kernel.tile<64xf32>
  kernel.return
}

// -----

kernel.func @large(%x: memref<4294967296xf32>) axes() plan() {
  // expected-error@+1 {{has a value of more than 2147483647 elements}}
  %t = kernel.read %x : memref<4294967296xf32> -> !kernel.tile<64xf32>
  kernel.return
}

// -----

kernel.func @empty(%x: memref<64xf32>) axes() plan() {
  // expected-error@+1 {{has an extent of 0; at least 1 is needed}}
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<0xf32>
  kernel.return
}
