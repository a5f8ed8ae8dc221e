// RUN: cfc-opt %s --kernel-assign-storage -split-input-file -verify-diagnostics

kernel.func @first(%y: memref<64xf32>) axes() plan() {
  kernel.return
}
// expected-error@+1 {{has a tensor "y" of type 'memref<32xf32>'; an earlier kernel has it as 'memref<64xf32>'}}
kernel.func @second(%y: memref<32xf32>) axes() plan() {
  kernel.return
}

// -----

// expected-error@+1 {{argument 0 has no name}}
kernel.func @unnamed(%0: memref<64xf32>) axes() plan() {
  kernel.return
}

// -----

// expected-error@+1 {{has "x" at table entry 1; entry 0 is the next that is free}}
kernel.func @gap(%x: memref<64xf32> {kernel.entry = 1 : i32}) axes() plan() {
  kernel.return
}

// -----

// expected-error@+1 {{has "y" of type 'memref<64xf32>' at table entry 0, where "x" of type 'memref<64xf32>' is}}
kernel.func @shared(%x: memref<64xf32> {kernel.entry = 0 : i32}, %y: memref<64xf32> {kernel.entry = 0 : i32}) axes() plan() {
  kernel.return
}

// -----

// expected-error@+1 {{argument 0 needs a name and one place}}
kernel.func @word(%x: memref<64xf32> {kernel.entry = "first"}) axes() plan() {
  kernel.return
}

// -----

module attributes {kernel.workspace_bytes = 256 : i64, kernel.zero_bytes = 16 : i64} {
  // expected-error@+1 {{argument 0 lies at byte 16 of the workspace; multiples of 16 from 16 to 0 are possible}}
  kernel.func @outside(%x: memref<64xf32> {kernel.workspace = 16 : i64}) axes() plan() {
    kernel.return
  }
}

// -----

// expected-error@+1 {{needs kernel.workspace_bytes, at most 2^40, and kernel.zero_bytes, no more than those}}
module attributes {kernel.workspace_bytes = -5 : i64, kernel.zero_bytes = 16 : i64} {
  kernel.func @negative() axes() plan() {
    kernel.return
  }
}

// -----

module attributes {kernel.workspace_bytes = 256 : i64, kernel.zero_bytes = 16 : i64} {
  kernel.func @finish(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<64xf32>) axes(item = 2 @grid) plan() {
    kernel.for_items %i over item {
      %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
      %s = kernel.load %w rows [64] columns at %i : memref<64x64xf16> -> !kernel.stream<64x32xf16>
      %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<64xf32, item: partial(sum)>
      // expected-error@+1 {{its 4 and 512 bytes do not lie in it}}
      kernel.finish %m over item by ordered attributes {counters = 0 : i64, partials = 16 : i64} : !kernel.tile<64xf32, item: partial(sum)> as %sum: !kernel.tile<64xf32> {
        kernel.write %sum, %y : !kernel.tile<64xf32>, memref<64xf32>
      }
    }
    kernel.return
  }
}

// -----

module attributes {kernel.workspace_bytes = 1024 : i64, kernel.zero_bytes = 16 : i64} {
  kernel.func @waiting(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<64xf32>) axes(item = 2 @grid) plan() {
    kernel.for_items %i over item {
      %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
      %s = kernel.load %w rows [64] columns at %i : memref<64x64xf16> -> !kernel.stream<64x32xf16>
      %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x32xf16>, !kernel.tile<32xf16> -> !kernel.tile<64xf32, item: partial(sum)>
      // expected-error@+1 {{its 4 and 512 bytes do not lie in it}}
      kernel.finish %m over item by ordered attributes {counters = 0 : i64, partials = 16 : i64, finishers = 2 : i64} : !kernel.tile<64xf32, item: partial(sum)> as %sum: !kernel.tile<64xf32> {
        kernel.write %sum, %y : !kernel.tile<64xf32>, memref<64xf32>
      }
    }
    kernel.return
  }
}

// -----

// expected-error@+1 {{has pdl = 2, but no kernel of this file is before it: with 1 it reads no cache before the last launch has ended}}
kernel.func @first(%l: memref<1xi32>) axes() plan(pdl = 2) {
  kernel.return
}

// -----

kernel.func @hasty(%x: memref<8xf16>) axes() plan(pdl = 1) {
  kernel.return
}
// expected-error@+1 {{has pdl = 2, but may start before the kernel before it has waited: @hasty needs lets_next = 2}}
kernel.func @second(%l: memref<1xi32>) axes() plan(pdl = 2) {
  kernel.return
}

// -----

kernel.func @makes(%x: memref<64xf16> {kernel.entry = 0 : i32}, %c: !kernel.cache<heads = 1, dim = 64, f16> {kernel.entry = 1 : i32}, %s: memref<1xi64> {kernel.entry = 6 : i32}) axes(head = 1 @grid) plan(pdl = 1, lets_next = 2) {
  kernel.for_items %h over head {
    %k = kernel.read %x at %h : memref<64xf16> -> !kernel.tile<64xf16>
    kernel.append %k, %k to %c slot %s at %h : !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi64>, !kernel.item
  }
  kernel.return
}
kernel.func @takes(%q: memref<64xf16> {kernel.entry = 7 : i32}, %c: !kernel.cache<heads = 1, dim = 64, f16> {kernel.entry = 1 : i32}, %l: memref<1xi32> {kernel.entry = 8 : i32}, %y: memref<64xf16> {kernel.entry = 9 : i32}) axes(head = 1 @grid) plan(pdl = 2) {
  kernel.for_items %h over head {
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{takes what another kernel of this file writes, which with pdl = 2 may not be there yet: give the kernel pdl = 1}}
    %kv = kernel.load_cache %c tokens %l at %h bound 128 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item -> <64, f16>
    %o = kernel.attend %t, %kv scale 1.25e-01 : !kernel.tile<64xf16>, <64, f16> -> !kernel.tile<1x66xf32>
    %r, %e = kernel.normalize %o : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
    kernel.write %r, %y at %h : !kernel.tile<64xf16>, memref<64xf16>
  }
  kernel.return
}

// -----

kernel.func @early(%x: memref<8xf16>, %w: memref<8x8xf16>, %y: memref<8xf32>) axes() plan(pdl = 1) {
  %t = kernel.read %x : memref<8xf16> -> !kernel.tile<8xf16>
  // expected-error@+1 {{streams what a kernel of this file writes, which with pdl = 1 may not be there yet}}
  %s = kernel.load %w rows [8] : memref<8x8xf16> -> !kernel.stream<8x8xf16>
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<8x8xf16>, !kernel.tile<8xf16> -> !kernel.tile<8xf32>
  kernel.write %m, %y : !kernel.tile<8xf32>, memref<8xf32>
  kernel.return
}
kernel.func @late(%v: memref<64xf16>, %w: memref<8x8xf16>) axes() plan() {
  %t = kernel.read %v : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.write %t, %w : !kernel.tile<64xf16>, memref<8x8xf16>
  kernel.return
}

// -----

module attributes {kernel.workspace_bytes = 256 : i64, kernel.zero_bytes = 16 : i64} {
  kernel.func @sync() axes() plan() {
    // expected-error@+1 {{has its counter at byte 16 of the workspace, of which the first 16 bytes are zero between launches: it does not lie in them}}
    kernel.grid_sync {counter = 16 : i64}
    kernel.return
  }
}

// -----

// Appended tokens are written while the second loop's stream, which knows no slot, may be on its way.
kernel.func @before(%x: memref<64xf16>, %z: memref<64xf16>) axes() plan(pdl = 1, lets_next = 2) {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.write %t, %z : !kernel.tile<64xf16>, memref<64xf16>
  kernel.return
}
kernel.func @both(%z: memref<64xf16>, %q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %s: memref<1xi64>, %l: memref<1xi32>, %y: memref<64xf16>) axes(head = 1 @grid, head2 = 1 @grid) plan(pdl = 2) {
  kernel.for_items %h over head {
    %k = kernel.read %z at %h : memref<64xf16> -> !kernel.tile<64xf16>
    kernel.append %k, %k to %c slot %s at %h : !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi64>, !kernel.item
  }
  kernel.grid_sync
  kernel.for_items %h over head2 {
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{takes rows, with pdl = 2 early, to which this kernel may itself append: it must have the append's slot}}
    %kv = kernel.load_cache %c tokens %l at %h bound 128 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item -> <64, f16>
    %o = kernel.attend %t, %kv scale 1.25e-01 : !kernel.tile<64xf16>, <64, f16> -> !kernel.tile<1x66xf32>
    %r, %e = kernel.normalize %o : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
    kernel.write %r, %y at %h : !kernel.tile<64xf16>, memref<64xf16>
  }
  kernel.return
}

// -----

// Without pdl likewise: the ring is filled with the second loop's stream while the first appends.
kernel.func @joined(%x: memref<64xf16>, %q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %s: memref<1xi64>, %l: memref<1xi32>, %y: memref<64xf16>) axes(head = 1 @grid, head2 = 1 @grid) plan() {
  kernel.for_items %h over head {
    %k = kernel.read %x at %h : memref<64xf16> -> !kernel.tile<64xf16>
    kernel.append %k, %k to %c slot %s at %h : !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi64>, !kernel.item
  }
  kernel.grid_sync
  kernel.for_items %h over head2 {
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{takes rows to which this kernel may append before a kernel.grid_sync, ahead of which streams are read: it must have the append's slot, or be in a kernel of its own}}
    %kv = kernel.load_cache %c tokens %l at %h bound 128 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item -> <64, f16>
    %o = kernel.attend %t, %kv scale 1.25e-01 : !kernel.tile<64xf16>, <64, f16> -> !kernel.tile<1x66xf32>
    %r, %e = kernel.normalize %o : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
    kernel.write %r, %y at %h : !kernel.tile<64xf16>, memref<64xf16>
  }
  kernel.return
}

// -----

// With pdl = 1, and a slot that is not the append's.
kernel.func @other_slot(%x: memref<64xf16>, %q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %s: memref<1xi64>, %s2: memref<1xi64>, %l: memref<1xi32>, %y: memref<64xf16>) axes(head = 1 @grid, head2 = 1 @grid) plan(pdl = 1) {
  kernel.for_items %h over head {
    %k = kernel.read %x at %h : memref<64xf16> -> !kernel.tile<64xf16>
    kernel.append %k, %k to %c slot %s at %h : !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi64>, !kernel.item
  }
  kernel.grid_sync
  kernel.for_items %h over head2 {
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{takes rows to which this kernel may append before a kernel.grid_sync}}
    %kv = kernel.load_cache %c tokens %l slot %s2 at %h bound 128 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, memref<1xi64>, !kernel.item -> <64, f16>
    %o = kernel.attend %t, %kv scale 1.25e-01 : !kernel.tile<64xf16>, <64, f16> -> !kernel.tile<1x66xf32>
    %r, %e = kernel.normalize %o : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
    kernel.write %r, %y at %h : !kernel.tile<64xf16>, memref<64xf16>
  }
  kernel.return
}

// -----

// The last 16 bytes of what is streamed are the first that another kernel writes.
module attributes {kernel.workspace_bytes = 1024 : i64, kernel.zero_bytes = 0 : i64} {
  kernel.func @early_part(%x: memref<8xf16> {kernel.entry = 0 : i32}, %w: memref<8x8xf16> {kernel.name = "w", kernel.workspace = 256 : i64}, %y: memref<8xf32> {kernel.entry = 1 : i32}) axes() plan(pdl = 1) {
    %t = kernel.read %x : memref<8xf16> -> !kernel.tile<8xf16>
    // expected-error@+1 {{streams what a kernel of this file writes, which with pdl = 1 may not be there yet}}
    %s = kernel.load %w rows [8] : memref<8x8xf16> -> !kernel.stream<8x8xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<8x8xf16>, !kernel.tile<8xf16> -> !kernel.tile<8xf32>
    kernel.write %m, %y : !kernel.tile<8xf32>, memref<8xf32>
    kernel.return
  }
  kernel.func @late_part(%v: memref<64xf16> {kernel.entry = 2 : i32}, %w: memref<64xf16> {kernel.name = "v2", kernel.workspace = 368 : i64}) axes() plan() {
    %t = kernel.read %v : memref<64xf16> -> !kernel.tile<64xf16>
    kernel.write %t, %w : !kernel.tile<64xf16>, memref<64xf16>
    kernel.return
  }
}

// -----

// A length that begins in the middle of what the kernel before writes.
module attributes {kernel.workspace_bytes = 1024 : i64, kernel.zero_bytes = 0 : i64} {
  kernel.func @makes_length(%x: memref<64xf16> {kernel.entry = 0 : i32}, %z: memref<64xf16> {kernel.name = "z", kernel.workspace = 128 : i64}) axes() plan(pdl = 1, lets_next = 2) {
    %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
    kernel.write %t, %z : !kernel.tile<64xf16>, memref<64xf16>
    kernel.return
  }
  kernel.func @takes_length(%q: memref<64xf16> {kernel.entry = 1 : i32}, %c: !kernel.cache<heads = 1, dim = 64, f16> {kernel.entry = 2 : i32, kernel.name = "c"}, %l: memref<1xi32> {kernel.name = "l", kernel.workspace = 192 : i64}, %y: memref<64xf16> {kernel.entry = 7 : i32}) axes(head = 1 @grid) plan(pdl = 2) {
    kernel.for_items %h over head {
      %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
      // expected-error@+1 {{takes what a kernel of this file writes, which with pdl = 2 may not be there yet}}
      %kv = kernel.load_cache %c tokens %l at %h bound 128 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item -> <64, f16>
      %o = kernel.attend %t, %kv scale 1.25e-01 : !kernel.tile<64xf16>, <64, f16> -> !kernel.tile<1x66xf32>
      %r, %e = kernel.normalize %o : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
      kernel.write %r, %y at %h : !kernel.tile<64xf16>, memref<64xf16>
    }
    kernel.return
  }
}

// -----

// Weights under another name than that which the first part writes.
module attributes {kernel.workspace_bytes = 1024 : i64, kernel.zero_bytes = 16 : i64} {
  kernel.func @alias(%v: memref<64xf16> {kernel.entry = 0 : i32}, %x: memref<8xf16> {kernel.entry = 1 : i32}, %z: memref<64xf16> {kernel.name = "z", kernel.workspace = 256 : i64}, %w: memref<8x8xf16> {kernel.name = "w", kernel.workspace = 288 : i64}, %y: memref<8xf32> {kernel.entry = 2 : i32}) axes() plan() {
    %t = kernel.read %v : memref<64xf16> -> !kernel.tile<64xf16>
    kernel.write %t, %z : !kernel.tile<64xf16>, memref<64xf16>
    kernel.grid_sync {counter = 0 : i64}
    %f = kernel.read %x : memref<8xf16> -> !kernel.tile<8xf16>
    // expected-error@+1 {{takes what this kernel writes before a kernel.grid_sync, ahead of which streams, gains and what says which rows to take are read: it must be in a kernel of its own}}
    %s = kernel.load %w rows [8] : memref<8x8xf16> -> !kernel.stream<8x8xf16>
    %m = kernel.matmul %s, %f slots 1 : !kernel.stream<8x8xf16>, !kernel.tile<8xf16> -> !kernel.tile<8xf32>
    kernel.write %m, %y : !kernel.tile<8xf32>, memref<8xf32>
    kernel.return
  }
}

// -----

// A kernel.leave writes, too.
module {
  kernel.func @leaves(%x: memref<1x66xf32>, %states: memref<1x3x1x66xf32>) axes(item = 2 @grid) plan() {
    %t = kernel.read %x : memref<1x66xf32> -> !kernel.tile<1x66xf32>
    kernel.for_items %i over item {
      %h = kernel.outer %i of 2
      %n = kernel.inner %i of 2
      kernel.first %n {
        kernel.leave %t to %states at %h : !kernel.tile<1x66xf32>, memref<1x3x1x66xf32>, !kernel.item
      }
    }
    kernel.return
  }
  kernel.func @early(%y: memref<66xf32>, %states: memref<1x3x1x66xf32>) axes() plan(pdl = 1) {
    %t = kernel.read %y : memref<66xf32> -> !kernel.tile<66xf32>
    // expected-error@+1 {{has a gain that a kernel of this file writes, which with pdl = 1 may not be there yet: leave out pdl}}
    %n = kernel.rms_norm %t, %states eps 1.0e-5 : !kernel.tile<66xf32>, memref<1x3x1x66xf32> -> !kernel.tile<66xf32>
    kernel.return
  }
}

// -----

// What a kernel may write is any of the memories that it names.
kernel.func @makes_panels(%x: memref<64xf16>, %y: memref<32xf16>, %w: memref<32xf16>) axes(panel = 4 @grid) plan(pdl = 1, lets_next = 2) {
  kernel.for_items %i over panel {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<16xf16>
    kernel.write %t, %y, %w at %i : !kernel.tile<16xf16>, memref<32xf16>, memref<32xf16>
  }
  kernel.return
}
kernel.func @norms(%z: memref<32xf16>, %w: memref<32xf16>, %u: memref<32xf16>) axes() plan(pdl = 1) {
  %t = kernel.read %z : memref<32xf16> -> !kernel.tile<32xf16>
  // expected-error@+1 {{has a gain that a kernel of this file writes, which with pdl = 1 may not be there yet}}
  %n = kernel.rms_norm %t, %w eps 1.0e-05 : !kernel.tile<32xf16>, memref<32xf16> -> !kernel.tile<32xf16>
  kernel.write %n, %u : !kernel.tile<32xf16>, memref<32xf16>
  kernel.return
}

// -----

// Nor may a kernel write any of the weights of which another streams panels.
kernel.func @makes_weight(%x: memref<4x8xf16>, %b: memref<4x8xf16>) axes() plan(pdl = 1) {
  %t = kernel.read %x rows : memref<4x8xf16> -> !kernel.tile<4x8xf16>
  kernel.write %t, %b rows : !kernel.tile<4x8xf16>, memref<4x8xf16>
  kernel.return
}
kernel.func @streams_panels(%z: memref<8xf16>, %a: memref<8x8xf16>, %b: memref<4x8xf16>, %u: memref<12xf32>) axes(panel = 3 @grid) plan(pdl = 1) {
  %t = kernel.read %z : memref<8xf16> -> !kernel.tile<8xf16>
  kernel.for_items %i over panel {
    // expected-error@+1 {{streams what a kernel of this file writes, which with pdl = 1 may not be there yet}}
    %s = kernel.load %a, %b rows [4] panels at %i : memref<8x8xf16>, memref<4x8xf16> -> !kernel.stream<4x8xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<4x8xf16>, !kernel.tile<8xf16> -> !kernel.tile<4xf32>
    kernel.write %m, %u at %i : !kernel.tile<4xf32>, memref<12xf32>
  }
  kernel.return
}
