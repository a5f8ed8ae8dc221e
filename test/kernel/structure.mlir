// A kernel is one block of the kernel dialect's operations that ends with kernel.return.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics

// expected-error@+1 {{needs one block that ends with kernel.return}}
kernel.func @nothing() axes() plan() {
}

// -----

kernel.func @no_return(%x: memref<64xf32>, %y: memref<64xf32>) axes() plan() {
  %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32>
  // expected-error@+1 {{block with no terminator}}
  kernel.write %t, %y : !kernel.tile<64xf32>, memref<64xf32>
}

// -----

// expected-error@+1 {{needs one block that ends with kernel.return}}
kernel.func @blocks() axes() plan() {
  kernel.return
^other:
  kernel.return
}

// -----

kernel.func @foreign() axes() plan() {
  // expected-error@+1 {{cannot stand in a kernel.func}}
  %c = arith.constant 1 : i32
  kernel.return
}

// -----

kernel.func @outer() axes() plan() {
  // expected-error@+1 {{symbol's parent must have the SymbolTable trait}}
  kernel.func @inner() axes() plan() {
    kernel.return
  }
  kernel.return
}

// -----

kernel.func @outside(%x: memref<64xf32>, %y: memref<64xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf32> -> !kernel.tile<16xf32>
  }
  // expected-error@+1 {{use of undeclared SSA value name}}
  kernel.write %t, %y : !kernel.tile<16xf32>, memref<64xf32>
  kernel.return
}

// -----

// expected-error@+1 {{plan key 'ctas_per_sm' is 0; 1 to 32 are possible}}
kernel.func @ctas() axes() plan(ctas_per_sm = 0) {
  kernel.return
}

// -----

// expected-error@+1 {{plan key 'tile_columns' is -16; 0 to 1048576 are possible}}
kernel.func @columns() axes() plan(tile_columns = -16) {
  kernel.return
}

// -----

// expected-error@+1 {{has 4294967296 CTAs a cluster; 16 are the most}}
kernel.func @overflow() axes(a = 4294967296 @cta, b = 4294967296 @cta) plan() {
  kernel.return
}

// -----

// expected-error@+1 {{axis "item" has 1000000000 items; up to 16777216 are possible}}
kernel.func @items() axes(item = 1000000000 @grid) plan() {
  kernel.return
}

// -----

// expected-error@+1 {{takes memory of f16, bf16, f32, i32 and i64, not 'memref<4xf64>'}}
kernel.func @double(%x: memref<4xf64>) axes() plan() {
  kernel.return
}

// -----

// expected-error@+1 {{takes caches of f16, bf16 or f8E4M3FN}}
kernel.func @cache(%c: !kernel.cache<heads = 2, dim = 64, f32>) axes() plan() {
  kernel.return
}

// -----

// expected-error@+1 {{has an extent of 0; at least 1 is needed}}
kernel.func @empty(%x: memref<0xf32>) axes() plan() {
  kernel.return
}

// -----

// expected-error@+1 {{is called 'an odd name', which becomes a name in PTX: use letters, digits and _}}
kernel.func @"an odd name"() axes() plan() {
  kernel.return
}
