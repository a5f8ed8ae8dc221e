// What is done once for all parts of a whole: kernel.first, what may stand in it, and what it may store.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// What concerns a whole is stored by the first of its parts.
// CHECK-LABEL: kernel.func @of_the_first
// CHECK: kernel.first %{{.*}} {
// CHECK: kernel.write %{{.*}} at %{{.*}} : <8xf32>, memref<32xf32>
kernel.func @of_the_first(%x: memref<32xf32>, %y: memref<32xf32>) axes(item = 8 @grid) plan() {
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    %t = kernel.read %x at %h : memref<32xf32> -> !kernel.tile<8xf32>
    kernel.first %n {
      kernel.write %t, %y at %h : !kernel.tile<8xf32>, memref<32xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @first_of_an_item(%x: memref<32xf32>) axes(item = 8 @grid) plan() {
  kernel.for_items %i over item {
    // expected-error@+1 {{takes the kernel.inner of an item: which part of its whole it is}}
    kernel.first %i {
    }
  }
  kernel.return
}

// -----

kernel.func @first_with_arguments(%x: memref<32xf32>) axes(item = 8 @grid) plan() {
  kernel.for_items %i over item {
    %n = kernel.inner %i of 2
    // expected-error@+1 {{has no block arguments}}
    "kernel.first"(%n) ({
    ^bb0(%a: !kernel.item):
      "kernel.yield"() : () -> ()
    }) : (!kernel.item) -> ()
  }
  kernel.return
}

// -----

kernel.func @first_in_first(%x: memref<32xf32>) axes(item = 8 @grid) plan() {
  kernel.for_items %i over item {
    %n = kernel.inner %i of 2
    kernel.first %n {
      // expected-error@+1 {{cannot stand in kernel.first, which other items leave out}}
      kernel.first %n {
      }
    }
  }
  kernel.return
}

// -----

kernel.func @exchange_in_first(%x: memref<8xf32>) axes(item = 8 @grid, part = 2 @cta) plan() {
  kernel.for_items %i over item {
    %n = kernel.inner %i of 2
    %t = kernel.read %x : memref<8xf32> -> !kernel.tile<8xf32, part: split(0)>
    kernel.first %n {
      // expected-error@+1 {{cannot stand in kernel.first, which other items leave out}}
      %g = kernel.exchange gather %t over "part" by push : !kernel.tile<8xf32, part: split(0)> -> !kernel.tile<8xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @stream_in_first(%x: memref<64xf16>, %w: memref<64x64xf16>) axes(item = 8 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over item {
    %n = kernel.inner %i of 2
    kernel.first %n {
      %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
      // expected-error@+1 {{cannot stand in kernel.first, which other items leave out}}
      %y = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @finish_in_first(%x: memref<8xf32>) axes(item = 8 @grid) plan() {
  kernel.for_items %i over item {
    %n = kernel.inner %i of 2
    %t = kernel.read %x : memref<8xf32> -> !kernel.tile<8xf32>
    %f = kernel.fold add %t : !kernel.tile<8xf32> -> !kernel.tile<1xf32, item: partial(sum)>
    kernel.first %n {
      // expected-error@+1 {{cannot stand in kernel.first, which other items leave out}}
      kernel.finish %f over item by ordered attributes {each = 2 : i64} : !kernel.tile<1xf32, item: partial(sum)> as %s: !kernel.tile<1xf32> {
      }
    }
  }
  kernel.return
}

// -----

// The last part that arrives runs the kernel.finish: it need not be the first.
kernel.func @first_in_finish(%x: memref<8xf32>, %y: memref<4xf32>) axes(item = 8 @grid) plan() {
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    %t = kernel.read %x : memref<8xf32> -> !kernel.tile<8xf32>
    %f = kernel.fold add %t : !kernel.tile<8xf32> -> !kernel.tile<1xf32, item: partial(sum)>
    kernel.finish %f over item by ordered attributes {each = 2 : i64} : !kernel.tile<1xf32, item: partial(sum)> as %s: !kernel.tile<1xf32> {
      // expected-error@+1 {{cannot stand in kernel.finish, which runs in any of the parts}}
      kernel.first %n {
        kernel.write %s, %y at %h : !kernel.tile<1xf32>, memref<4xf32>
      }
    }
  }
  kernel.return
}

// -----

// The shares of a head are of several clusters.
kernel.func @first_of_shares(%c: !kernel.cache<heads = 2, dim = 64, f16>, %len: memref<1xi32>, %q: memref<128xf16>) axes(head = 2 @grid) plan() {
  %w = kernel.work_list %c tokens %len bound 64 : !kernel.cache<heads = 2, dim = 64, f16>, memref<1xi32>
  kernel.for_items %i, %share over head by %w {
    %n = kernel.inner %i of 2
    // expected-error@+1 {{cannot stand in a loop by a kernel.work_list, of which several clusters have an item}}
    kernel.first %n {
    }
  }
  kernel.return
}

// -----

kernel.func @write_of_another_whole(%x: memref<8xf32>, %y: memref<16xf32>) axes(item = 8 @grid) plan() {
  kernel.for_items %i over item {
    %h = kernel.outer %i of 4
    %n = kernel.inner %i of 2
    %t = kernel.read %x : memref<8xf32> -> !kernel.tile<8xf32>
    kernel.first %n {
      // expected-error@+1 {{would store several items to the same elements: put it into a kernel.first, or a kernel.finish of each of their runs}}
      kernel.write %t, %y at %h : !kernel.tile<8xf32>, memref<16xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @write_at_the_part(%x: memref<8xf32>, %y: memref<16xf32>) axes(item = 8 @grid) plan() {
  kernel.for_items %i over item {
    %n = kernel.inner %i of 2
    %t = kernel.read %x : memref<8xf32> -> !kernel.tile<8xf32>
    kernel.first %n {
      // expected-error@+1 {{would store several items to the same elements: put it into a kernel.first, or a kernel.finish of each of their runs}}
      kernel.write %t, %y at %n : !kernel.tile<8xf32>, memref<16xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @write_of_all(%x: memref<8xf32>, %y: memref<8xf32>) axes(item = 8 @grid) plan() {
  kernel.for_items %i over item {
    %n = kernel.inner %i of 2
    %t = kernel.read %x : memref<8xf32> -> !kernel.tile<8xf32>
    kernel.first %n {
      // expected-error@+1 {{would write every item to the same elements: give `at %item`}}
      kernel.write %t, %y : !kernel.tile<8xf32>, memref<8xf32>
    }
  }
  kernel.return
}

// -----

kernel.func @append_of_another_whole(%k: memref<16xf16>, %c: !kernel.cache<heads = 1, dim = 16, f16>, %slot: memref<1xi64>) axes(item = 4 @grid) plan() {
  kernel.for_items %i over item {
    %h = kernel.outer %i of 4
    %n = kernel.inner %i of 2
    %t = kernel.read %k : memref<16xf16> -> !kernel.tile<16xf16>
    kernel.first %n {
      // expected-error@+1 {{would store several items to the same elements: put it into a kernel.first, or a kernel.finish of each of their runs}}
      kernel.append %t, %t to %c slot %slot at %h : !kernel.tile<16xf16>, !kernel.tile<16xf16>, !kernel.cache<heads = 1, dim = 16, f16>, memref<1xi64>, !kernel.item
    }
  }
  kernel.return
}
