// Which panels of stacked weights, and parts of one of several memories, an item cannot have.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics

kernel.func @two_counts(%x: memref<64xf16>, %a: memref<192x64xf16>, %b: memref<64x64xf16>) axes(panel = 4 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    // expected-error@+1 {{has 2 row counts; panels have one}}
    %s = kernel.load %a, %b rows [64, 64] panels at %i : memref<192x64xf16>, memref<64x64xf16> -> !kernel.stream<128x64xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<128x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<128xf32>
  }
  kernel.return
}

// -----

kernel.func @one_weight(%x: memref<64xf16>, %a: memref<256x64xf16>) axes(panel = 4 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    // expected-error@+1 {{takes panels of several weights}}
    %s = kernel.load %a rows [64] panels at %i : memref<256x64xf16> -> !kernel.stream<64x64xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
  }
  kernel.return
}

// -----

kernel.func @both(%x: memref<64xf16>, %a: memref<192x64xf16>, %b: memref<64x64xf16>) axes(panel = 4 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    %u = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<16xf16>
    // expected-error@+1 {{takes columns or panels, not both}}
    %s = kernel.load %a, %b rows [64] columns panels at %i : memref<192x64xf16>, memref<64x64xf16> -> !kernel.stream<64x16xf16>
    %m = kernel.matmul %s, %u slots 1 : !kernel.stream<64x16xf16>, !kernel.tile<16xf16> -> !kernel.tile<64xf32, panel: partial(sum)>
  }
  kernel.return
}

// -----

kernel.func @straddles(%x: memref<64xf16>, %a: memref<192x64xf16>, %b: memref<96x64xf16>) axes(panel = 4 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    // expected-error@+1 {{takes 64 rows of one of several memories: 'memref<96x64xf16>' has 96, no multiple of that}}
    %s = kernel.load %a, %b rows [64] panels at %i : memref<192x64xf16>, memref<96x64xf16> -> !kernel.stream<64x64xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
  }
  kernel.return
}

// -----

kernel.func @no_item(%x: memref<64xf16>, %a: memref<192x64xf16>, %b: memref<64x64xf16>) axes(panel = 4 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    // expected-error@+1 {{takes rows of one of several memories, which one an item says: give `at %item`}}
    %s = kernel.load %a, %b rows [64] panels : memref<192x64xf16>, memref<64x64xf16> -> !kernel.stream<64x64xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
  }
  kernel.return
}

// -----

kernel.func @too_many_items(%x: memref<64xf16>, %a: memref<192x64xf16>, %b: memref<64x64xf16>) axes(panel = 5 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    // expected-error@+1 {{takes 64 rows for each of 5 items; its memories have 256}}
    %s = kernel.load %a, %b rows [64] panels at %i : memref<192x64xf16>, memref<64x64xf16> -> !kernel.stream<64x64xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
  }
  kernel.return
}

// -----

kernel.func @other_stream(%x: memref<64xf16>, %a: memref<192x64xf16>, %b: memref<64x64xf16>) axes(panel = 4 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    // expected-error@+1 {{stacks 64 rows into a stream of 128}}
    %s = kernel.load %a, %b rows [64] panels at %i : memref<192x64xf16>, memref<64x64xf16> -> !kernel.stream<128x64xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<128x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<128xf32>
  }
  kernel.return
}

// -----

kernel.func @zero(%x: memref<64xf16>, %a: memref<192x64xf16>, %b: memref<64x64xf16>) axes(panel = 4 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    // expected-error@+1 {{takes 0 rows of 'memref<192x64xf16>'; at least 1 is needed}}
    %s = kernel.load %a, %b rows [0] panels at %i : memref<192x64xf16>, memref<64x64xf16> -> !kernel.stream<64x64xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
  }
  kernel.return
}

// -----

kernel.func @types(%a: memref<192xf16>, %b: memref<64xbf16>, %c: memref<256xf32>) axes(panel = 4 @grid) plan() {
  kernel.for_items %i over panel {
    // expected-error@+1 {{takes elements of one of several memories: 'memref<192xf16>' and 'memref<64xbf16>' differ in more than their number of elements}}
    %t = kernel.read %a, %b at %i : memref<192xf16>, memref<64xbf16> -> !kernel.tile<64xf16>
    kernel.write %t, %c at %i : !kernel.tile<64xf16>, memref<256xf32>
  }
  kernel.return
}

// -----

kernel.func @rank(%a: memref<192xf16>, %b: memref<1x64xf16>, %c: memref<256xf32>) axes(panel = 4 @grid) plan() {
  kernel.for_items %i over panel {
    // expected-error@+1 {{takes elements of one of several memories of rank 1, not 'memref<1x64xf16>'}}
    %t = kernel.read %a, %b at %i : memref<192xf16>, memref<1x64xf16> -> !kernel.tile<64xf16>
    kernel.write %t, %c at %i : !kernel.tile<64xf16>, memref<256xf32>
  }
  kernel.return
}

// -----

kernel.func @tokens(%a: memref<4x192xf16>, %b: memref<3x64xf16>, %c: memref<4x256xf16>) axes(panel = 4 @grid) plan() {
  kernel.for_items %i over panel {
    // expected-error@+1 {{takes columns of one of several memories: 'memref<4x192xf16>' and 'memref<3x64xf16>' differ in more than their number of columns}}
    %t = kernel.read %a, %b columns at %i : memref<4x192xf16>, memref<3x64xf16> -> !kernel.tile<64x3xf16>
    kernel.write %t, %c columns at %i : !kernel.tile<64x3xf16>, memref<4x256xf16>
  }
  kernel.return
}

// -----

kernel.func @rows(%a: memref<4x192xf16>, %b: memref<4x64xf16>, %c: memref<4x256xf16>) axes(panel = 4 @grid) plan() {
  kernel.for_items %i over panel {
    // expected-error@+1 {{takes rows of one memory, not of 2}}
    %t = kernel.read %a, %b rows at %i : memref<4x192xf16>, memref<4x64xf16> -> !kernel.tile<4x64xf16>
    kernel.write %t, %c rows at %i : !kernel.tile<4x64xf16>, memref<4x256xf16>
  }
  kernel.return
}

// -----

kernel.func @overhangs(%a: memref<256xf16>, %b: memref<192xf16>, %c: memref<50xf16>) axes(panel = 4 @grid) plan() {
  kernel.for_items %i over panel {
    %t = kernel.read %a at %i : memref<256xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{takes 64 elements of one of several memories: 'memref<50xf16>' has 50, no multiple of that}}
    kernel.write %t, %b, %c at %i : !kernel.tile<64xf16>, memref<192xf16>, memref<50xf16>
  }
  kernel.return
}

// -----

kernel.func @same(%a: memref<256xf16>, %b: memref<128xf16>) axes(panel = 4 @grid) plan() {
  kernel.for_items %i over panel {
    %t = kernel.read %a at %i : memref<256xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{would write several items to the same elements: its memories are the same}}
    kernel.write %t, %b, %b at %i : !kernel.tile<64xf16>, memref<128xf16>, memref<128xf16>
  }
  kernel.return
}

// -----

kernel.func @read_too(%a: memref<128xf16>, %b: memref<128xf16>, %c: memref<128xf16>) axes(panel = 4 @grid) plan() {
  kernel.for_items %i over panel {
    %t = kernel.read %a, %b at %i : memref<128xf16>, memref<128xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{writes memory that this kernel also reads: other CTAs may read before or after}}
    kernel.write %t, %c, %b at %i : !kernel.tile<64xf16>, memref<128xf16>, memref<128xf16>
  }
  kernel.return
}
