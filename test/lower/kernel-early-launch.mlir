// RUN: cfc-opt %s --kernel-assign-storage --kernel-outline-producer --kernel-to-simt --cse --canonicalize | FileCheck %s

// How kernels start and let others start: plan keys pdl and lets_next.

// Without pdl nothing is to be waited for: the next one may start at once.
// CHECK-LABEL: simt.kernel @lets
// CHECK-NOT: cfc.pdl
// CHECK: simt.grid_launch
// CHECK-NOT: simt.grid_wait
// CHECK: simt.return
kernel.func @lets(%q: memref<64xf16> {kernel.entry = 0 : i32}, %y: memref<64xf16> {kernel.entry = 1 : i32}) axes() plan(lets_next = 1) {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.write %t, %y : !kernel.tile<64xf16>, memref<64xf16>
  kernel.return
}

// With pdl = 1 the next one starts at once, or when this one has waited, or at its end.
// CHECK-LABEL: simt.kernel @at_once
// CHECK-SAME: cfc.pdl
// CHECK: simt.grid_launch
// CHECK: simt.grid_wait
kernel.func @at_once(%q: memref<64xf16> {kernel.entry = 0 : i32}, %y: memref<64xf16> {kernel.entry = 1 : i32}) axes() plan(pdl = 1) {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.write %t, %y : !kernel.tile<64xf16>, memref<64xf16>
  kernel.return
}

// CHECK-LABEL: simt.kernel @at_its_end
// CHECK-SAME: cfc.pdl
// CHECK-NOT: simt.grid_launch
// CHECK: simt.grid_wait
// CHECK-NOT: simt.grid_launch
// CHECK: simt.return
kernel.func @at_its_end(%q: memref<64xf16> {kernel.entry = 0 : i32}, %y: memref<64xf16> {kernel.entry = 1 : i32}) axes() plan(pdl = 3, lets_next = 0) {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.write %t, %y : !kernel.tile<64xf16>, memref<64xf16>
  kernel.return
}

// CHECK-LABEL: simt.kernel @behind_its_wait
// CHECK-NOT: simt.grid_launch
// CHECK: simt.grid_wait
// CHECK-NEXT: simt.grid_launch
// CHECK-NOT: simt.grid_launch
// CHECK: simt.return
kernel.func @behind_its_wait(%q: memref<64xf16> {kernel.entry = 0 : i32}, %y: memref<64xf16> {kernel.entry = 1 : i32}) axes() plan(pdl = 1, lets_next = 2) {
  %t = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.write %t, %y : !kernel.tile<64xf16>, memref<64xf16>
  kernel.return
}

// With pdl = 2 the producer copies cached tokens without a wait. Consumers wait before they read anything, and where a length
// is out of bound once more, for nothing is written before.
// CHECK-LABEL: simt.kernel @takes_tokens
// CHECK-SAME: cfc.pdl
// CHECK-NOT: simt.grid_wait
// CHECK: simt.tensor_load
// CHECK: simt.grid_wait
// CHECK-NEXT: {{.*}}simt.load
// CHECK: simt.grid_wait
// CHECK-NEXT: simt.atomic or
// CHECK: simt.mma
kernel.func @takes_tokens(%q: memref<64xf16> {kernel.entry = 0 : i32}, %c: !kernel.cache<heads = 1, dim = 64, f16> {kernel.entry = 2 : i32}, %l: memref<1xi32> {kernel.entry = 7 : i32}, %y: memref<64xf16> {kernel.entry = 1 : i32}) axes(head = 1 @grid) plan(pdl = 2) {
  kernel.for_items %h over head {
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %l at %h bound 128 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item -> <64, f16>
    %o = kernel.attend %t, %kv scale 1.25e-01 : !kernel.tile<64xf16>, <64, f16> -> !kernel.tile<1x66xf32>
    %r, %e = kernel.normalize %o : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
    kernel.write %r, %y at %h : !kernel.tile<64xf16>, memref<64xf16>
  }
  kernel.return
}
