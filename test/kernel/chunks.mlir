// Items that are chunks of heads: the kernel reads back as it is written, and what its verifier says.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-LABEL: kernel.func @chunks
// CHECK: kernel.for_items %[[I:.*]] over chunk {
// CHECK: %[[H:.*]] = kernel.outer %[[I]] of 4
// CHECK: %[[C:.*]] = kernel.inner %[[I]] of 4
// CHECK: kernel.load_cache {{.*}} at %[[H]] chunk %[[C]] bound 64 : {{.*}} -> <64, f16, part: split(0)>
// CHECK: kernel.attend {{.*}} -> <1x66xf32, part: partial(softmax), chunk: partial(softmax)>
// CHECK: kernel.finish {{.*}} over chunk by ordered attributes {{{.*}}each = 4 : i64{{.*}}} : {{.*}} as %[[S:.*]]: !kernel.tile<1x66xf32> {
// CHECK: kernel.append {{.*}} at %[[H]]
// CHECK: kernel.write {{.*}} at %[[H]]
kernel.func @chunks(%q: memref<128xf16>, %c: !kernel.cache<heads = 2, dim = 64, f16>, %slot: memref<1xi64>, %len: memref<1xi32>, %o: memref<128xf16>)
    axes(chunk = 8 @grid, part = 2 @cta) plan() {
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 4
    %n = kernel.inner %i of 4
    %t = kernel.read %q at %h : memref<128xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 2, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16, part: split(0)>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16, part: split(0)> -> !kernel.tile<1x66xf32, part: partial(softmax), chunk: partial(softmax)>
    %r = kernel.exchange reduce %p over "part" by push : !kernel.tile<1x66xf32, part: partial(softmax), chunk: partial(softmax)> -> !kernel.tile<1x66xf32, chunk: partial(softmax)>
    kernel.finish %r over chunk by ordered attributes {each = 4 : i64} : !kernel.tile<1x66xf32, chunk: partial(softmax)> as %s: !kernel.tile<1x66xf32> {
      %y, %l = kernel.normalize %s : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
      kernel.append %t, %t to %c slot %slot at %h : !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.cache<heads = 2, dim = 64, f16>, memref<1xi64>, !kernel.item
      kernel.write %y, %o at %h : !kernel.tile<64xf16>, memref<128xf16>
    }
  }
  kernel.return
}

// -----

// CHECK-LABEL: kernel.func @runs
// Sums have runs too.
kernel.func @runs(%x: memref<6x8xf32>, %y: memref<3xf32>) axes(item = 6 @grid) plan() {
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %t = kernel.read %x at %i : memref<6x8xf32> -> !kernel.tile<8xf32>
    %f = kernel.fold add %t : !kernel.tile<8xf32> -> !kernel.tile<1xf32, item: partial(sum)>
    kernel.finish %f over item by ordered attributes {each = 2 : i64} : !kernel.tile<1xf32, item: partial(sum)> as %s: !kernel.tile<1xf32> {
      kernel.write %s, %y at %h : !kernel.tile<1xf32>, memref<3xf32>
    }
  }
  kernel.return
}

// -----

// 64 groups of segments, in 16 chunks of 4 CTAs each; 16 groups are not said.
// CHECK-LABEL: kernel.func @of_64_groups
// CHECK: kernel.load_cache {{.*}} bound 64 {groups = 64 : i64} : {{.*}} -> <64, f16, part: split(0)>
// CHECK: kernel.load_cache {{.*}} bound 64 : {{.*}} -> <64, f16>
kernel.func @of_64_groups(%q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %o: memref<64xf16>)
    axes(chunk = 16 @grid, part = 4 @cta) plan() {
  %x = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 16
    %n = kernel.inner %i of 16
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 {groups = 64 : i64} : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16, part: split(0)>
    %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16, part: split(0)> -> !kernel.tile<1x66xf32, part: partial(softmax), chunk: partial(softmax)>
  }
  %all = kernel.load_cache %c tokens %len bound 64 {groups = 16 : i64} : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32> -> !kernel.kv_stream<64, f16>
  %w = kernel.attend %x, %all scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @indivisible(%x: memref<64xf32>) axes(item = 6 @grid) plan() {
  kernel.for_items %i over item {
    // expected-error@+1 {{divides 6 items into runs of 4, which does not divide them}}
    %h = kernel.outer %i of 4
  }
  kernel.return
}

// -----

kernel.func @of_none(%x: memref<64xf32>) axes(item = 6 @grid) plan() {
  kernel.for_items %i over item {
    // expected-error@+1 {{divides 6 items into runs of 0, which does not divide them}}
    %h = kernel.inner %i of 0
  }
  kernel.return
}

// -----

kernel.func @twice(%x: memref<64xf32>) axes(item = 8 @grid) plan() {
  kernel.for_items %i over item {
    %h = kernel.inner %i of 2
    // expected-error@+1 {{takes the item of a kernel.for_items, or a kernel.outer of it}}
    %g = kernel.outer %h of 2
  }
  kernel.return
}

// -----

kernel.func @not_of_a_head(%c: !kernel.cache<heads = 8, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>) axes(chunk = 8 @grid) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over chunk {
    %n = kernel.inner %i of 4
    // expected-error@+1 {{streams a chunk of a head: `at` is a kernel.outer, `chunk` the kernel.inner of the same item and number}}
    %kv = kernel.load_cache %c tokens %len at %i chunk %n bound 64 : !kernel.cache<heads = 8, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, chunk: partial(softmax)>
  }
  kernel.return
}

// -----

kernel.func @three(%c: !kernel.cache<heads = 2, dim = 64, f16>, %len: memref<1xi32>, %q: memref<128xf16>) axes(chunk = 6 @grid) plan() {
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 3
    %n = kernel.inner %i of 3
    %t = kernel.read %q at %h : memref<128xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{cuts 16 groups of segments into 3 chunks; 1, 2, 4, 8 and 16 are possible}}
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 2, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, chunk: partial(softmax)>
  }
  kernel.return
}

// -----

kernel.func @more_than_16(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>) axes(chunk = 32 @grid) plan() {
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 32
    %n = kernel.inner %i of 32
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{cuts 64 groups of segments into 32 chunks; 1, 2, 4, 8 and 16 are possible}}
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 {groups = 64 : i64} : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, chunk: partial(softmax)>
  }
  kernel.return
}

// -----

kernel.func @no_number_of_groups(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>) axes() plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{has 48 groups of segments; 16, 32, 64 and 128 are possible}}
  %kv = kernel.load_cache %c tokens %len bound 64 {groups = 48 : i64} : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32> -> !kernel.kv_stream<64, f16>
  %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @too_many(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>) axes(chunk = 8 @grid, part = 4 @cta) plan() {
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 8
    %n = kernel.inner %i of 8
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{splits 2 elements over the 4 workers of "part"; that does not divide}}
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16, part: split(0)>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16, part: split(0)> -> !kernel.tile<1x66xf32, part: partial(softmax), chunk: partial(softmax)>
  }
  kernel.return
}

// -----

kernel.func @whole_of_chunk(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>) axes(chunk = 8 @grid) plan() {
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 8
    %n = kernel.inner %i of 8
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    // expected-error@+1 {{attends to a chunk of a head: its result is partial(softmax) over `chunk`}}
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32>
  }
  kernel.return
}

// -----

kernel.func @chunk_of_whole(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>) axes(head = 1 @grid) plan() {
  kernel.for_items %i over head {
    %t = kernel.read %q at %i : memref<64xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len at %i bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item -> !kernel.kv_stream<64, f16>
    // expected-error@+1 {{gives a whole softmax to every worker of `head`, who attend to the same tokens; its type says a partial softmax}}
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, head: partial(softmax)>
  }
  kernel.return
}

// -----

kernel.func @sum_of_chunk(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>) axes(chunk = 2 @grid) plan() {
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    // expected-error@+1 {{gives a partial sum over `chunk`: it is partial(softmax) there}}
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, chunk: partial(sum)>
  }
  kernel.return
}

// -----

kernel.func @all_softmaxes(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>) axes(chunk = 2 @grid) plan() {
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, chunk: partial(softmax)>
    // expected-error@+1 {{merges partial softmaxes of each 1 to 16 items: give `each`}}
    kernel.finish %p over chunk by ordered : !kernel.tile<1x66xf32, chunk: partial(softmax)> as %s: !kernel.tile<1x66xf32> {
    }
  }
  kernel.return
}

// -----

kernel.func @split_softmax(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>) axes(chunk = 2 @grid, part = 2 @cta) plan() {
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16, part: split(0)>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16, part: split(0)> -> !kernel.tile<1x66xf32, part: partial(softmax), chunk: partial(softmax)>
    // expected-error@+1 {{needs the softmax replicated over `part`; it is a partial softmax: insert `kernel.exchange reduce … over part`}}
    kernel.finish %p over chunk by ordered attributes {each = 2 : i64} : !kernel.tile<1x66xf32, part: partial(softmax), chunk: partial(softmax)> as %s: !kernel.tile<1x66xf32, part: partial(softmax)> {
    }
  }
  kernel.return
}

// -----

kernel.func @each_of_atomic(%x: memref<8xf32>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x : memref<8xf32> -> !kernel.tile<8xf32>
    %f = kernel.fold add %t : !kernel.tile<8xf32> -> !kernel.tile<1xf32, item: partial(sum)>
    // expected-error@+1 {{reduces each 2 of 2 items; what divides them is possible, by ordered, without `gather` and `pieces`}}
    kernel.finish %f over item by atomic attributes {each = 2 : i64} : !kernel.tile<1xf32, item: partial(sum)> as %s: !kernel.tile<1xf32> {
    }
  }
  kernel.return
}

// -----

kernel.func @write_of_run(%x: memref<8xf32>, %y: memref<2xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x : memref<8xf32> -> !kernel.tile<8xf32>
    %f = kernel.fold add %t : !kernel.tile<8xf32> -> !kernel.tile<1xf32, item: partial(sum)>
    kernel.finish %f over item by ordered attributes {each = 2 : i64} : !kernel.tile<1xf32, item: partial(sum)> as %s: !kernel.tile<1xf32> {
      // expected-error@+1 {{in a kernel.finish of each 2 items stores at the kernel.outer of 2}}
      kernel.write %s, %y at %i : !kernel.tile<1xf32>, memref<2xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @write_of_all(%x: memref<8xf32>, %y: memref<16xf32>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %t = kernel.read %x : memref<8xf32> -> !kernel.tile<8xf32>
    // expected-error@+1 {{would store several items to the same elements: put it into a kernel.first, or a kernel.finish of each of their runs}}
    kernel.write %t, %y at %h : !kernel.tile<8xf32>, memref<16xf32>
  }
  kernel.return
}

// -----

kernel.func @append_of_all(%k: memref<16xf16>, %c: !kernel.cache<heads = 1, dim = 16, f16>, %slot: memref<1xi64>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %t = kernel.read %k at %h : memref<16xf16> -> !kernel.tile<16xf16>
    // expected-error@+1 {{would store several items to the same elements: put it into a kernel.first, or a kernel.finish of each of their runs}}
    kernel.append %t, %t to %c slot %slot at %h : !kernel.tile<16xf16>, !kernel.tile<16xf16>, !kernel.cache<heads = 1, dim = 16, f16>, memref<1xi64>, !kernel.item
  }
  kernel.return
}
