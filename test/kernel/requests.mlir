// Several requests, pages and work lists: the kernel reads back as it is written, and what its verifier says.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-LABEL: kernel.func @shared_out
// CHECK-SAME: !kernel.cache<heads = 2, dim = 64, requests = 3, page = 16, f16>
// CHECK: %[[W:.*]] = kernel.work_list %{{.*}} tokens %{{.*}} slot %{{.*}} bound 64
// CHECK: kernel.for_items %[[H:.*]], %[[S:.*]] over head by %[[W]] {
// CHECK: %[[R:.*]] = kernel.outer %[[H]] of 2
// CHECK: kernel.rope half_split {{.*}} position {{.*}} at %[[R]]
// CHECK: kernel.load_cache {{.*}} slot {{.*}} pages {{.*}} at %[[H]] chunk %[[S]] bound 64
// CHECK: kernel.finish {{.*}} over head by ordered attributes {{{.*}}shares{{.*}}}
kernel.func @shared_out(%q: memref<384xf16>, %c: !kernel.cache<heads = 2, dim = 64, requests = 3, page = 16, f16>, %slot: memref<3xi64>, %len: memref<3xi32>,
    %pages: memref<3x4xi32>, %rot: memref<8x64xf32>, %pos: memref<3xi32>, %o: memref<384xf16>) axes(head = 6 @grid) plan() {
  %w = kernel.work_list %c tokens %len slot %slot bound 64 : !kernel.cache<heads = 2, dim = 64, requests = 3, page = 16, f16>, memref<3xi32>, memref<3xi64>
  kernel.for_items %h, %s over head by %w {
    %r = kernel.outer %h of 2
    %x = kernel.read %q at %h : memref<384xf16> -> !kernel.tile<64xf16>
    %t = kernel.rope half_split %x, %rot position %pos at %r : !kernel.tile<64xf16>, memref<8x64xf32>, memref<3xi32>, !kernel.item -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len slot %slot pages %pages at %h chunk %s bound 64 : !kernel.cache<heads = 2, dim = 64, requests = 3, page = 16, f16>, memref<3xi32>, memref<3xi64>, memref<3x4xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, head: partial(softmax)>
    kernel.finish %p over head by ordered attributes {shares} : !kernel.tile<1x66xf32, head: partial(softmax)> as %m: !kernel.tile<1x66xf32> {
      %a = kernel.attend_new %m, %t, %t, %x slot %slot at %r scale 1.0 : !kernel.tile<1x66xf32>, !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.tile<64xf16>, memref<3xi64>, !kernel.item -> !kernel.tile<1x66xf32>
      %y, %l = kernel.normalize %a : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
      kernel.append %t, %x to %c slot %slot at %h : !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.cache<heads = 2, dim = 64, requests = 3, page = 16, f16>, memref<3xi64>, !kernel.item
      kernel.write %y, %o at %h : !kernel.tile<64xf16>, memref<384xf16>
    }
  }
  kernel.return
}

// -----

kernel.func @too_few_lengths(%q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, %len: memref<2xi32>) axes(head = 3 @grid) plan() {
  // expected-error@+1 {{needs the number of tokens of each of 3 requests, not 'memref<2xi32>'}}
  %w = kernel.work_list %c tokens %len bound 64 : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<2xi32>
  kernel.return
}

// -----

kernel.func @other_items(%c: !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, %len: memref<3xi32>) axes(head = 2 @grid) plan() {
  %w = kernel.work_list %c tokens %len bound 64 : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<3xi32>
  // expected-error@+1 {{shares out 2 items by a kernel.work_list of as many heads}}
  kernel.for_items %h, %s over head by %w {
  }
  kernel.return
}

// -----

kernel.func @clusters(%c: !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, %len: memref<3xi32>) axes(head = 3 @grid, part = 2 @cta) plan() {
  %w = kernel.work_list %c tokens %len bound 64 : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<3xi32>
  // expected-error@+1 {{shares out heads to clusters of one CTA with 4 consumer warps}}
  kernel.for_items %h, %s over head by %w {
  }
  kernel.return
}

// -----

kernel.func @stored_by_each(%q: memref<192xf16>, %c: !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, %len: memref<3xi32>, %o: memref<192xf16>) axes(head = 3 @grid) plan() {
  %w = kernel.work_list %c tokens %len bound 64 : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<3xi32>
  kernel.for_items %h, %s over head by %w {
    %x = kernel.read %q at %h : memref<192xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{would store a head for each of its shares: put it into a kernel.finish of its `shares`}}
    kernel.write %x, %o at %h : !kernel.tile<64xf16>, memref<192xf16>
  }
  kernel.return
}

// -----

kernel.func @no_pages(%q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, page = 16, f16>, %len: memref<1xi32>) axes() plan() {
  %x = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{needs `pages`, where the pages of '!kernel.cache<heads = 1, dim = 64, page = 16, f16>' lie}}
  %kv = kernel.load_cache %c tokens %len bound 64 : !kernel.cache<heads = 1, dim = 64, page = 16, f16>, memref<1xi32> -> !kernel.kv_stream<64, f16>
  %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @few_pages(%q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, page = 16, f16>, %len: memref<1xi32>, %pages: memref<1x2xi32>) axes() plan() {
  %x = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  // expected-error@+1 {{has a bound of 64 tokens; its pages hold 32}}
  %kv = kernel.load_cache %c tokens %len pages %pages bound 64 : !kernel.cache<heads = 1, dim = 64, page = 16, f16>, memref<1xi32>, memref<1x2xi32> -> !kernel.kv_stream<64, f16>
  %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32>
  kernel.return
}

// -----

kernel.func @other_window(%q: memref<192xf16>, %c: !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, %len: memref<3xi32>) axes(head = 3 @grid) plan() {
  %w = kernel.work_list %c tokens %len bound 64 {window = 7 : i64} : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<3xi32>
  kernel.for_items %h, %s over head by %w {
    %x = kernel.read %q at %h : memref<192xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{streams other tokens than those that its kernel.work_list shares out}}
    %kv = kernel.load_cache %c tokens %len at %h chunk %s bound 64 {window = 8 : i64} : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<3xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, head: partial(softmax)>
  }
  kernel.return
}

// -----

kernel.func @no_window(%c: !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, %len: memref<3xi32>) axes(head = 3 @grid) plan() {
  // expected-error@+1 {{has a window of -1 tokens; 1 or more are possible, or 0 for all}}
  %w = kernel.work_list %c tokens %len bound 64 {window = -1 : i64} : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<3xi32>
  kernel.return
}

// -----

// CHECK-LABEL: kernel.func @of_32_groups
// CHECK: kernel.work_list {{.*}} bound 64 {groups = 32 : i64} :
// CHECK: kernel.load_cache {{.*}} bound 64 {groups = 32 : i64} :
kernel.func @of_32_groups(%q: memref<192xf16>, %c: !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, %len: memref<3xi32>) axes(head = 3 @grid) plan() {
  %w = kernel.work_list %c tokens %len bound 64 {groups = 32 : i64} : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<3xi32>
  kernel.for_items %h, %s over head by %w {
    %x = kernel.read %q at %h : memref<192xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len at %h chunk %s bound 64 {groups = 32 : i64} : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<3xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, head: partial(softmax)>
  }
  kernel.return
}

// -----

kernel.func @other_groups(%q: memref<192xf16>, %c: !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, %len: memref<3xi32>) axes(head = 3 @grid) plan() {
  %w = kernel.work_list %c tokens %len bound 64 {groups = 64 : i64} : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<3xi32>
  kernel.for_items %h, %s over head by %w {
    %x = kernel.read %q at %h : memref<192xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{streams other tokens than those that its kernel.work_list shares out}}
    %kv = kernel.load_cache %c tokens %len at %h chunk %s bound 64 : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<3xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, head: partial(softmax)>
  }
  kernel.return
}

// -----

kernel.func @no_number_of_groups(%c: !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, %len: memref<3xi32>) axes(head = 3 @grid) plan() {
  // expected-error@+1 {{has 256 groups of segments; 16, 32, 64 and 128 are possible}}
  %w = kernel.work_list %c tokens %len bound 64 {groups = 256 : i64} : !kernel.cache<heads = 1, dim = 64, requests = 3, f16>, memref<3xi32>
  kernel.return
}
