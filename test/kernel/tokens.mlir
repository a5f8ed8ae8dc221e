// Kernels of several tokens read back as they are written, and what does not fit is refused.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics | cfc-opt -split-input-file | FileCheck %s

// CHECK-LABEL: kernel.func @tokens
kernel.func @tokens(%x: memref<3x256xf16>, %gain: memref<256xf32>, %w: memref<64x256xf16>, %v: memref<32x256xf16>,
    %table: memref<9x16xf32>, %pos: memref<3xi32>, %bias: memref<64xf16>, %y: memref<3x64xf32>, %z: memref<3x32xf32>)
    axes(item = 2 @grid, part = 2 @cta) plan() {
  // CHECK: kernel.read %{{.*}} rows : memref<3x256xf16> -> <4x256xf16, part: split(0)>
  %r = kernel.read %x rows : memref<3x256xf16> -> !kernel.tile<4x256xf16, part: split(0)>
  // CHECK: kernel.rms_scale
  %p = kernel.rms_scale %r eps 1.0e-5 : !kernel.tile<4x256xf16, part: split(0)> -> !kernel.tile<4xf32, part: split(0)>
  %a = kernel.exchange gather %p over "part" by async : !kernel.tile<4xf32, part: split(0)> -> !kernel.tile<4xf32>
  %c = kernel.extract %a from 0 : !kernel.tile<4xf32> -> !kernel.tile<3xf32>
  %t = kernel.read %x rows : memref<3x256xf16> -> !kernel.tile<3x256xf16, part: split(1)>
  // CHECK: kernel.rms_norm %{{.*}}, %{{.*}} scale %{{.*}} eps
  %n = kernel.rms_norm %t, %gain scale %c eps 1.0e-5 : !kernel.tile<3x256xf16, part: split(1)>, memref<256xf32>, !kernel.tile<3xf32> -> !kernel.tile<3x256xf16, part: split(1)>
  kernel.for_items %i over item {
    %s = kernel.load %w, %v rows [32, 16] at %i : memref<64x256xf16>, memref<32x256xf16> -> !kernel.stream<48x256xf16, part: split(1)>
    // CHECK: kernel.matmul {{.*}} slots 16 parts 2
    %m = kernel.matmul %s, %n slots 16 parts 2 : !kernel.stream<48x256xf16, part: split(1)>, !kernel.tile<3x256xf16, part: split(1)> -> !kernel.tile<48x3xf32, part: partial(sum)>
    %d = kernel.exchange reduce_scatter %m over "part" by push : !kernel.tile<48x3xf32, part: partial(sum)> -> !kernel.tile<48x3xf32, part: split(0)>
    // CHECK: kernel.extract %{{.*}} from 96 {{.*}} -> <16x3xf32, part: split(0)>
    %q = kernel.extract %d from 0 : !kernel.tile<48x3xf32, part: split(0)> -> !kernel.tile<32x3xf32, part: split(0)>
    %k = kernel.extract %d from 96 : !kernel.tile<48x3xf32, part: split(0)> -> !kernel.tile<16x3xf32, part: split(0)>
    %b = kernel.read %bias at %i : memref<64xf16> -> !kernel.tile<32xf16, part: split(0)>
    // CHECK: kernel.elementwise  add %{{.*}}, %{{.*}} : <32x3xf32, part: split(0)>, <32xf16, part: split(0)>
    %e = kernel.elementwise add %q, %b : !kernel.tile<32x3xf32, part: split(0)>, !kernel.tile<32xf16, part: split(0)> -> !kernel.tile<32x3xf32, part: split(0)>
    // CHECK: kernel.write %{{.*}}, %{{.*}} columns at
    kernel.write %e, %y columns at %i : !kernel.tile<32x3xf32, part: split(0)>, memref<3x64xf32>
    %f = kernel.exchange gather %k over "part" by push : !kernel.tile<16x3xf32, part: split(0)> -> !kernel.tile<16x3xf32>
    // CHECK: kernel.rope
    %o = kernel.rope half_split %f, %table position %pos : !kernel.tile<16x3xf32>, memref<9x16xf32>, memref<3xi32> -> !kernel.tile<16x3xf32>
    kernel.write %o, %z columns at %i : !kernel.tile<16x3xf32>, memref<3x32xf32>
  }
  kernel.return
}

// -----

kernel.func @too_many(%x: memref<65x64xf16>, %w: memref<64x64xf16>) axes() plan() {
  %t = kernel.read %x rows : memref<65x64xf16> -> !kernel.tile<65x64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  // expected-error@+1 {{multiplies by 65 tokens; up to 64 are possible}}
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<65x64xf16> -> !kernel.tile<64x65xf32>
  kernel.return
}

// -----

kernel.func @product(%x: memref<8x64xf16>, %w: memref<64x64xf16>) axes() plan() {
  %t = kernel.read %x rows : memref<8x64xf16> -> !kernel.tile<8x64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  // expected-error@+1 {{of several tokens gives a tile [rows, tokens]}}
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<8x64xf16> -> !kernel.tile<8x64xf32>
  kernel.return
}

// -----

kernel.func @not_rounded(%x: memref<8x64xf32>, %w: memref<64x64xf16>) axes() plan() {
  %t = kernel.read %x rows : memref<8x64xf32> -> !kernel.tile<8x64xf32>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  // expected-error@+1 {{multiplies by several tokens in f16 or bf16: round them by kernel.cast}}
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<8x64xf32> -> !kernel.tile<64x8xf32>
  kernel.return
}

// -----

kernel.func @view(%x: memref<9x64xf16>, %w: memref<64x64xf16>) axes() plan() {
  %a = kernel.read %x rows : memref<9x64xf16> -> !kernel.tile<9x64xf16>
  %t = kernel.extract %a from 64 : !kernel.tile<9x64xf16> -> !kernel.tile<8x64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  // expected-error@+1 {{takes several tokens from kernel.read, rms_norm, cast or elementwise}}
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<8x64xf16> -> !kernel.tile<64x8xf32>
  kernel.return
}

// -----

kernel.func @exchanged(%x: memref<8x64xf16>, %w: memref<64x64xf16>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x rows : memref<8x64xf16> -> !kernel.tile<8x64xf16, part: split(1)>
  %o = kernel.exchange all_to_all %t over "part" by push : !kernel.tile<8x64xf16, part: split(1)> -> !kernel.tile<8x64xf16, part: split(0)>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16, part: split(1)>
  // expected-error@+1 {{takes several tokens that kernel.exchange does not take too}}
  %m = kernel.matmul %s, %t slots 4 : !kernel.stream<64x64xf16, part: split(1)>, !kernel.tile<8x64xf16, part: split(1)> -> !kernel.tile<64x8xf32, part: partial(sum)>
  kernel.return
}

// -----

kernel.func @parts(%x: memref<8x64xf16>, %w: memref<66x64xf16>) axes() plan() {
  %t = kernel.read %x rows : memref<8x64xf16> -> !kernel.tile<8x64xf16>
  %s = kernel.load %w rows [66] : memref<66x64xf16> -> !kernel.stream<66x64xf16>
  // expected-error@+1 {{deals rows to 4 parts, which does not divide those of each weight}}
  %m = kernel.matmul %s, %t slots 1 parts 4 : !kernel.stream<66x64xf16>, !kernel.tile<8x64xf16> -> !kernel.tile<66x8xf32>
  kernel.return
}

// -----

kernel.func @scale_of_columns(%x: memref<8x64xf16>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x rows : memref<8x64xf16> -> !kernel.tile<8x64xf16, part: split(1)>
  // expected-error@+1 {{needs whole rows of %x replicated over `part`; it is split over dimension 1}}
  %s = kernel.rms_scale %t eps 1.0e-5 : !kernel.tile<8x64xf16, part: split(1)> -> !kernel.tile<8xf32>
  kernel.return
}

// -----

kernel.func @other_scales(%x: memref<8x64xf16>, %gain: memref<64xf32>) axes(part = 2 @cta) plan() {
  %t = kernel.read %x rows : memref<8x64xf16> -> !kernel.tile<8x64xf16, part: split(0)>
  %s = kernel.rms_scale %t eps 1.0e-5 : !kernel.tile<8x64xf16, part: split(0)> -> !kernel.tile<8xf32, part: split(0)>
  %u = kernel.read %x rows : memref<8x64xf16> -> !kernel.tile<8x64xf16>
  // expected-error@+1 {{needs the scales of the rows that a CTA has: insert `kernel.exchange gather … over part`}}
  %n = kernel.rms_norm %u, %gain scale %s eps 1.0e-5 : !kernel.tile<8x64xf16>, memref<64xf32>, !kernel.tile<8xf32, part: split(0)> -> !kernel.tile<8x64xf16>
  kernel.return
}

// -----

kernel.func @positions(%x: memref<8x64xf16>, %table: memref<9x16xf32>, %pos: memref<1xi32>) axes() plan() {
  %t = kernel.read %x columns : memref<8x64xf16> -> !kernel.tile<64x8xf16>
  // expected-error@+1 {{rotates 8 tokens by positions from 0 on, of 1}}
  %r = kernel.rope half_split %t, %table position %pos : !kernel.tile<64x8xf16>, memref<9x16xf32>, memref<1xi32> -> !kernel.tile<64x8xf16>
  kernel.return
}

// -----

kernel.func @columns(%x: memref<8x64xf16>) axes() plan() {
  // expected-error@+1 {{has 64 tokens in '!kernel.tile<8x64xf16>', from 0 on of 8 in 'memref<8x64xf16>'}}
  %t = kernel.read %x columns : memref<8x64xf16> -> !kernel.tile<8x64xf16>
  kernel.return
}

// -----

kernel.func @both(%x: memref<8x8xf16>) axes() plan() {
  // expected-error@+1 {{takes rows or columns, not both}}
  %t = kernel.read %x rows columns : memref<8x8xf16> -> !kernel.tile<8x8xf16>
  kernel.return
}

// -----

kernel.func @flat(%x: memref<64xf16>) axes() plan() {
  // expected-error@+1 {{moves rows or columns of memory [tokens, width] and a tile of rank 2}}
  %t = kernel.read %x rows : memref<64xf16> -> !kernel.tile<8x8xf16>
  kernel.return
}

// -----

kernel.func @from(%x: memref<8x64xf16>, %y: memref<8x64xf16>) axes() plan() {
  %t = kernel.read %x columns from 5 : memref<8x64xf16> -> !kernel.tile<64x3xf16>
  // expected-error@+1 {{has 3 tokens in '!kernel.tile<64x3xf16>', from 6 on of 8 in 'memref<8x64xf16>'}}
  kernel.write %t, %y columns from 6 : !kernel.tile<64x3xf16>, memref<8x64xf16>
  kernel.return
}
