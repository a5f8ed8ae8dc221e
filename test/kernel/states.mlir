// Softmaxes of chunks of heads that another kernel merges: both kernels read back as they are written, and what the verifiers say.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-LABEL: kernel.func @leaves
// CHECK: %[[H:.*]] = kernel.outer %[[I:.*]] of 4
// CHECK: %[[N:.*]] = kernel.inner %[[I]] of 4
// CHECK: %[[R:.*]] = kernel.exchange reduce_scatter {{.*}} -> <2x66xf32, chunk: partial(softmax), part: split(0)>
// CHECK: kernel.leave %[[R]] to %[[S:.*]] at %[[H]] part %[[N]] : !kernel.tile<2x66xf32, chunk: partial(softmax), part: split(0)>, memref<2x5x2x66xf32>, !kernel.item, !kernel.item
// CHECK: kernel.first %[[N]] {
// CHECK: kernel.append {{.*}} at %[[H]]
// CHECK: %[[E:.*]] = kernel.empty_state %[[R]] : <2x66xf32, chunk: partial(softmax), part: split(0)> -> <2x66xf32, part: split(0)>
// CHECK: %[[T:.*]] = kernel.attend_new %[[E]]
// CHECK: kernel.leave %[[T]] to %[[S]] at %[[H]] : !kernel.tile<2x66xf32, part: split(0)>, memref<2x5x2x66xf32>, !kernel.item
// CHECK: }
// CHECK-LABEL: kernel.func @merges
// CHECK: kernel.merge_states %{{.*}} new_last : memref<2x5x2x66xf32> -> <4x66xf32>
kernel.func @leaves(%q: memref<256xf16>, %k: memref<128xf16>, %c: !kernel.cache<heads = 2, dim = 64, f16>, %slot: memref<1xi64>, %len: memref<1xi32>, %states: memref<2x5x2x66xf32>)
    axes(chunk = 8 @grid, part = 2 @cta) plan() {
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 4
    %n = kernel.inner %i of 4
    %t = kernel.read %q at %h : memref<256xf16> -> !kernel.tile<128xf16>
    %row = kernel.read %k at %h : memref<128xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 2, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16, part: split(0)>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<128xf16>, !kernel.kv_stream<64, f16, part: split(0)> -> !kernel.tile<2x66xf32, part: partial(softmax), chunk: partial(softmax)>
    %r = kernel.exchange reduce_scatter %p over "part" by push : !kernel.tile<2x66xf32, part: partial(softmax), chunk: partial(softmax)> -> !kernel.tile<2x66xf32, chunk: partial(softmax), part: split(0)>
    kernel.leave %r to %states at %h part %n : !kernel.tile<2x66xf32, chunk: partial(softmax), part: split(0)>, memref<2x5x2x66xf32>, !kernel.item, !kernel.item
    kernel.first %n {
      kernel.append %row, %row to %c slot %slot at %h : !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.cache<heads = 2, dim = 64, f16>, memref<1xi64>, !kernel.item
      %e = kernel.empty_state %r : !kernel.tile<2x66xf32, chunk: partial(softmax), part: split(0)> -> !kernel.tile<2x66xf32, part: split(0)>
      %a = kernel.attend_new %e, %t, %row, %row slot %slot scale 1.0 : !kernel.tile<2x66xf32, part: split(0)>, !kernel.tile<128xf16>, !kernel.tile<64xf16>, !kernel.tile<64xf16>, memref<1xi64> -> !kernel.tile<2x66xf32, part: split(0)>
      kernel.leave %a to %states at %h : !kernel.tile<2x66xf32, part: split(0)>, memref<2x5x2x66xf32>, !kernel.item
    }
  }
  kernel.return
}
kernel.func @merges(%states: memref<2x5x2x66xf32>, %o: memref<256xf16>) axes() plan() {
  %s = kernel.merge_states %states new_last : memref<2x5x2x66xf32> -> !kernel.tile<4x66xf32>
  %y, %l = kernel.normalize %s : !kernel.tile<4x66xf32> -> !kernel.tile<256xf16>, !kernel.tile<4xf32>
  kernel.write %y, %o : !kernel.tile<256xf16>, memref<256xf16>
  kernel.return
}

// -----

// Without a new token, and of a state that every CTA has; in one launch, with a barrier between.
// CHECK-LABEL: kernel.func @in_one_launch
// CHECK: kernel.leave %{{.*}} part %{{.*}}memref<1x2x1x66xf32>
// CHECK: kernel.grid_sync
// CHECK: kernel.merge_states %{{.*}} : memref<1x2x1x66xf32> -> <1x66xf32>
kernel.func @in_one_launch(%q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %states: memref<1x2x1x66xf32>, %o: memref<64xf16>)
    axes(chunk = 2 @grid) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, chunk: partial(softmax)>
    kernel.leave %p to %states at %h part %n : !kernel.tile<1x66xf32, chunk: partial(softmax)>, memref<1x2x1x66xf32>, !kernel.item, !kernel.item
  }
  kernel.grid_sync
  %s = kernel.merge_states %states : memref<1x2x1x66xf32> -> !kernel.tile<1x66xf32>
  %y, %l = kernel.normalize %s : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
  kernel.write %y, %o : !kernel.tile<64xf16>, memref<64xf16>
  kernel.return
}

// -----

kernel.func @leave_outside(%x: memref<66xf32>, %s: memref<1x1x1x66xf32>) axes(item = 2 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    // expected-error@+1 {{leaves that of a part of a head, with `part`, or in a kernel.first that of the new tokens}}
    kernel.leave %t to %s at %h : !kernel.tile<1x66xf32>, memref<1x1x1x66xf32>, !kernel.item
  }
  kernel.return
}

// -----

kernel.func @leave_both(%x: memref<66xf32>, %s: memref<1x3x1x66xf32>) axes(item = 2 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    kernel.first %n {
      // expected-error@+1 {{leaves that of a part of a head, with `part`, or in a kernel.first that of the new tokens}}
      kernel.leave %t to %s at %h part %n : !kernel.tile<1x66xf32>, memref<1x3x1x66xf32>, !kernel.item, !kernel.item
    }
  }
  kernel.return
}

// -----

kernel.func @leave_in_finish(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>, %states: memref<1x2x1x66xf32>) axes(chunk = 2 @grid) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, chunk: partial(softmax)>
    kernel.finish %p over chunk by ordered attributes {each = 2 : i64} : !kernel.tile<1x66xf32, chunk: partial(softmax)> as %s: !kernel.tile<1x66xf32> {
      // expected-error@+1 {{leaves that of every item: it stands in no kernel.finish, nor in a loop by a kernel.work_list}}
      kernel.leave %p to %states at %h part %n : !kernel.tile<1x66xf32, chunk: partial(softmax)>, memref<1x2x1x66xf32>, !kernel.item, !kernel.item
    }
  }
  kernel.return
}

// -----

kernel.func @leave_shares(%c: !kernel.cache<heads = 2, dim = 64, f16>, %len: memref<1xi32>, %x: memref<66xf32>, %states: memref<1x2x1x66xf32>) axes(head = 2 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  %w = kernel.work_list %c tokens %len bound 64 : !kernel.cache<heads = 2, dim = 64, f16>, memref<1xi32>
  kernel.for_items %i, %share over head by %w {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    // expected-error@+1 {{leaves that of every item: it stands in no kernel.finish, nor in a loop by a kernel.work_list}}
    kernel.leave %t to %states at %h part %n : !kernel.tile<1x66xf32>, memref<1x2x1x66xf32>, !kernel.item, !kernel.item
  }
  kernel.return
}

// -----

kernel.func @leave_elsewhere(%x: memref<66xf32>, %states: memref<2x2x1x66xf32>) axes(item = 4 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 4
    // expected-error@+1 {{leaves a part of a head: `at` is a kernel.outer, `part` the kernel.inner of the same item and number}}
    kernel.leave %t to %states at %h part %n : !kernel.tile<1x66xf32>, memref<2x2x1x66xf32>, !kernel.item, !kernel.item
  }
  kernel.return
}

// -----

kernel.func @leave_of_another_first(%x: memref<66xf32>, %states: memref<2x5x1x66xf32>) axes(item = 8 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 4
    %n = kernel.inner %i of 2
    kernel.first %n {
      // expected-error@+1 {{leaves a part of a head: `at` is a kernel.outer, `part` the kernel.inner of the same item and number}}
      kernel.leave %t to %states at %h : !kernel.tile<1x66xf32>, memref<2x5x1x66xf32>, !kernel.item
    }
  }
  kernel.return
}

// -----

kernel.func @leave_whole(%x: memref<66xf32>, %states: memref<2x2x1x66xf32>) axes(item = 4 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    // expected-error@+1 {{leaves that of a part of a head, which is partial(softmax) over `item`, not '!kernel.tile<1x66xf32>'}}
    kernel.leave %t to %states at %h part %n : !kernel.tile<1x66xf32>, memref<2x2x1x66xf32>, !kernel.item, !kernel.item
  }
  kernel.return
}

// -----

kernel.func @leave_partial(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>, %states: memref<1x2x1x66xf32>) axes(chunk = 2 @grid, part = 2 @cta) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16, part: split(0)>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16, part: split(0)> -> !kernel.tile<1x66xf32, part: partial(softmax), chunk: partial(softmax)>
    // expected-error@+1 {{needs the softmax replicated over `part`; it is a partial softmax: insert `kernel.exchange reduce … over part`}}
    kernel.leave %p to %states at %h part %n : !kernel.tile<1x66xf32, part: partial(softmax), chunk: partial(softmax)>, memref<1x2x1x66xf32>, !kernel.item, !kernel.item
  }
  kernel.return
}

// -----

kernel.func @leave_new_of_chunk(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>, %states: memref<1x3x1x66xf32>) axes(chunk = 2 @grid) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, chunk: partial(softmax)>
    kernel.first %n {
      // expected-error@+1 {{needs the softmax replicated over `chunk`; it is a partial softmax: insert `kernel.finish … over chunk`}}
      kernel.leave %p to %states at %h : !kernel.tile<1x66xf32, chunk: partial(softmax)>, memref<1x3x1x66xf32>, !kernel.item
    }
  }
  kernel.return
}

// -----

// Columns of a softmax say nothing without those before them.
kernel.func @leave_columns(%x: memref<66xf32>, %states: memref<1x3x1x66xf32>) axes(item = 2 @grid, part = 2 @cta) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32, part: split(1)>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    kernel.first %n {
      // expected-error@+1 {{needs the softmax replicated over `part`; it is split over dimension 1}}
      kernel.leave %t to %states at %h : !kernel.tile<1x66xf32, part: split(1)>, memref<1x3x1x66xf32>, !kernel.item
    }
  }
  kernel.return
}

// -----

kernel.func @leave_narrow(%x: memref<66xf32>, %states: memref<1x3x2x66xf32>) axes(item = 2 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    kernel.first %n {
      // expected-error@+1 {{leaves '!kernel.tile<1x66xf32>' in 'memref<1x3x2x66xf32>': the shapes do not fit}}
      kernel.leave %t to %states at %h : !kernel.tile<1x66xf32>, memref<1x3x2x66xf32>, !kernel.item
    }
  }
  kernel.return
}

// -----

kernel.func @leave_no_softmax(%x: memref<8xf32>, %states: memref<1x3x1x8xf32>) axes(item = 2 @grid) plan() {
  %t = kernel.read %x : memref<8xf32> -> !kernel.tile<1x8xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    kernel.first %n {
      // expected-error@+1 {{needs an online softmax tile<heads x (dim + 2) x f32>, not '!kernel.tile<1x8xf32>'}}
      kernel.leave %t to %states at %h : !kernel.tile<1x8xf32>, memref<1x3x1x8xf32>, !kernel.item
    }
  }
  kernel.return
}

// -----

kernel.func @leave_flat(%x: memref<66xf32>, %states: memref<198xf32>) axes(item = 2 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    kernel.first %n {
      // expected-error@+1 {{needs memory of f32 [heads, states, rows, dim + 2] with up to 17 states of a head, not 'memref<198xf32>'}}
      kernel.leave %t to %states at %h : !kernel.tile<1x66xf32>, memref<198xf32>, !kernel.item
    }
  }
  kernel.return
}

// -----

kernel.func @leave_fewer_heads(%x: memref<66xf32>, %states: memref<4x3x1x66xf32>) axes(item = 4 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    kernel.first %n {
      // expected-error@+1 {{leaves 2 heads in 'memref<4x3x1x66xf32>'}}
      kernel.leave %t to %states at %h : !kernel.tile<1x66xf32>, memref<4x3x1x66xf32>, !kernel.item
    }
  }
  kernel.return
}

// -----

kernel.func @leave_fewer_parts(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>, %states: memref<1x4x1x66xf32>) axes(chunk = 2 @grid) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, chunk: partial(softmax)>
    // expected-error@+1 {{needs room for 2 parts of a head, not 'memref<1x4x1x66xf32>'}}
    kernel.leave %p to %states at %h part %n : !kernel.tile<1x66xf32, chunk: partial(softmax)>, memref<1x4x1x66xf32>, !kernel.item, !kernel.item
  }
  kernel.return
}

// -----

kernel.func @leave_no_room_for_new(%x: memref<66xf32>, %states: memref<1x2x1x66xf32>) axes(item = 2 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    kernel.first %n {
      // expected-error@+1 {{needs room for 2 parts of a head and the new tokens, not 'memref<1x2x1x66xf32>'}}
      kernel.leave %t to %states at %h : !kernel.tile<1x66xf32>, memref<1x2x1x66xf32>, !kernel.item
    }
  }
  kernel.return
}

// -----

kernel.func @leave_twice(%x: memref<66xf32>, %states: memref<1x3x1x66xf32>) axes(item = 2 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    kernel.first %n {
      // expected-error@+1 {{leaves a state where another kernel.leave does, too}}
      kernel.leave %t to %states at %h : !kernel.tile<1x66xf32>, memref<1x3x1x66xf32>, !kernel.item
      kernel.leave %t to %states at %h : !kernel.tile<1x66xf32>, memref<1x3x1x66xf32>, !kernel.item
    }
  }
  kernel.return
}

// -----

kernel.func @merge_at_once(%x: memref<66xf32>, %states: memref<1x3x1x66xf32>) axes(item = 2 @grid) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %n = kernel.inner %i of 2
    kernel.first %n {
      // expected-error@+1 {{writes memory that this kernel also reads: other CTAs may read before or after; write to another tensor, put a kernel.grid_sync between, or read in a kernel of its own}}
      kernel.leave %t to %states at %h : !kernel.tile<1x66xf32>, memref<1x3x1x66xf32>, !kernel.item
    }
  }
  %s = kernel.merge_states %states new_last : memref<1x3x1x66xf32> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @merge_written(%x: memref<66xf32>, %states: memref<1x1x1x66xf32>) axes() plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<66xf32>
  // expected-error@+1 {{writes memory that this kernel also reads: other CTAs may read before or after}}
  kernel.write %t, %states : !kernel.tile<66xf32>, memref<1x1x1x66xf32>
  %s = kernel.merge_states %states : memref<1x1x1x66xf32> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @merge_three(%states: memref<1x3x1x66xf32>) axes() plan() {
  // expected-error@+1 {{merges 3 parts of a head; 1, 2, 4, 8 and 16 are possible}}
  %s = kernel.merge_states %states : memref<1x3x1x66xf32> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @merge_none(%states: memref<1x1x1x66xf32>) axes() plan() {
  // expected-error@+1 {{merges 0 parts of a head; 1, 2, 4, 8 and 16 are possible}}
  %s = kernel.merge_states %states new_last : memref<1x1x1x66xf32> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @merge_too_many(%states: memref<1x18x1x66xf32>) axes() plan() {
  // expected-error@+1 {{needs memory of f32 [heads, states, rows, dim + 2] with up to 17 states of a head, not 'memref<1x18x1x66xf32>'}}
  %s = kernel.merge_states %states : memref<1x18x1x66xf32> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @merge_halves(%states: memref<1x4x1x66xf16>) axes() plan() {
  // expected-error@+1 {{needs memory of f32 [heads, states, rows, dim + 2] with up to 17 states of a head, not 'memref<1x4x1x66xf16>'}}
  %s = kernel.merge_states %states : memref<1x4x1x66xf16> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @merge_of_one_head(%states: memref<2x4x3x66xf32>) axes() plan() {
  // expected-error@+1 {{gives '!kernel.tile<6x66xf32>', not '!kernel.tile<3x66xf32>'}}
  %s = kernel.merge_states %states : memref<2x4x3x66xf32> -> !kernel.tile<3x66xf32>
  kernel.return
}

// -----

kernel.func @merge_split(%states: memref<2x4x2x66xf32>) axes(part = 2 @cta) plan() {
  // expected-error@+1 {{gives '!kernel.tile<4x66xf32>', not '!kernel.tile<4x66xf32, part: split(0)>'}}
  %s = kernel.merge_states %states : memref<2x4x2x66xf32> -> !kernel.tile<4x66xf32, part: split(0)>
  kernel.return
}

// -----

kernel.func @merge_no_softmax(%states: memref<2x4x2x8xf32>) axes() plan() {
  // expected-error@+1 {{needs an online softmax tile<heads x (dim + 2) x f32>, not '!kernel.tile<4x8xf32>'}}
  %s = kernel.merge_states %states : memref<2x4x2x8xf32> -> !kernel.tile<4x8xf32>
  kernel.return
}

// -----

kernel.func @empty_of_other_shape(%x: memref<66xf32>) axes() plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32>
  // expected-error@+1 {{gives '!kernel.tile<1x66xf32>', not '!kernel.tile<1x34xf32>'}}
  %e = kernel.empty_state %t : !kernel.tile<1x66xf32> -> !kernel.tile<1x34xf32>
  kernel.return
}

// -----

kernel.func @empty_of_no_softmax(%x: memref<66xf32>) axes() plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<66xf32>
  // expected-error@+1 {{needs an online softmax tile<heads x (dim + 2) x f32>, not '!kernel.tile<66xf32>'}}
  %e = kernel.empty_state %t : !kernel.tile<66xf32> -> !kernel.tile<66xf32>
  kernel.return
}

// -----

kernel.func @empty_still_partial(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>) axes(part = 2 @cta) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  %kv = kernel.load_cache %c tokens %len bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32> -> !kernel.kv_stream<64, f16, part: split(0)>
  %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16, part: split(0)> -> !kernel.tile<1x66xf32, part: partial(softmax)>
  // expected-error@+1 {{gives '!kernel.tile<1x66xf32>', not '!kernel.tile<1x66xf32, part: partial(softmax)>'}}
  %e = kernel.empty_state %p : !kernel.tile<1x66xf32, part: partial(softmax)> -> !kernel.tile<1x66xf32, part: partial(softmax)>
  kernel.return
}

// -----

kernel.func @empty_columns(%x: memref<66xf32>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32, part: split(1)>
  // expected-error@+1 {{needs the softmax replicated over `part`; it is split over dimension 1}}
  %e = kernel.empty_state %t : !kernel.tile<1x66xf32, part: split(1)> -> !kernel.tile<1x66xf32, part: split(1)>
  kernel.return
}

// -----

kernel.func @new_of_columns(%x: memref<66xf32>, %q: memref<64xf16>, %slot: memref<1xi64>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x : memref<66xf32> -> !kernel.tile<1x66xf32, part: split(1)>
  %k = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{needs the softmax replicated over `part`; it is split over dimension 1}}
  %a = kernel.attend_new %t, %k, %k, %k slot %slot scale 1.0 : !kernel.tile<1x66xf32, part: split(1)>, !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.tile<64xf16>, memref<1xi64> -> !kernel.tile<1x66xf32, part: split(1)>
  kernel.return
}

// -----

kernel.func @new_of_partial(%c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %q: memref<64xf16>, %slot: memref<1xi64>) axes(part = 2 @cta) plan() {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  %kv = kernel.load_cache %c tokens %len bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32> -> !kernel.kv_stream<64, f16, part: split(0)>
  %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16, part: split(0)> -> !kernel.tile<1x66xf32, part: partial(softmax)>
  // expected-error@+1 {{needs the softmax replicated over `part`; it is a partial softmax: insert `kernel.exchange reduce … over part`}}
  %a = kernel.attend_new %p, %t, %t, %t slot %slot scale 1.0 : !kernel.tile<1x66xf32, part: partial(softmax)>, !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.tile<64xf16>, memref<1xi64> -> !kernel.tile<1x66xf32, part: partial(softmax)>
  kernel.return
}

// -----

// The query is whole in every CTA, whichever heads it has of the softmax.
kernel.func @new_of_split_query(%x: memref<132xf32>, %q: memref<128xf16>, %k: memref<64xf16>, %slot: memref<1xi64>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x : memref<132xf32> -> !kernel.tile<2x66xf32, part: split(0)>
  %s = kernel.read %q : memref<128xf16> -> !kernel.tile<128xf16, part: split(0)>
  %r = kernel.read %k : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{needs its operands replicated over `part`; it is split over dimension 0: insert `kernel.exchange gather … over part`}}
  %a = kernel.attend_new %t, %s, %r, %r slot %slot scale 1.0 : !kernel.tile<2x66xf32, part: split(0)>, !kernel.tile<128xf16, part: split(0)>, !kernel.tile<64xf16>, !kernel.tile<64xf16>, memref<1xi64> -> !kernel.tile<2x66xf32, part: split(0)>
  kernel.return
}
