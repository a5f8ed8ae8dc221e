// Caches of f8E4M3FN with scales: the kernel reads back as it is written, and what its verifier says.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-LABEL: kernel.func @scaled
// CHECK: kernel.load_cache {{.*}} scales %[[KS:.*]], %[[VS:.*]] at %[[H:.*]] bound 64
// CHECK: kernel.quantize %[[X:.*]] by %[[KS]] at %[[H]] : !kernel.tile<64xf16>, memref<2xf32>, !kernel.item -> <64xf8E4M3FN>
// CHECK: kernel.quantize %[[X]] by %[[VS]] : !kernel.tile<64xf16>, memref<1xf32> -> <64xf8E4M3FN>
kernel.func @scaled(%q: memref<128xf16>, %c: !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, %slot: memref<1xi64>, %len: memref<1xi32>, %ks: memref<2xf32>, %vs: memref<1xf32>, %o: memref<128xf16>) axes(head = 2 @grid) plan() {
  kernel.for_items %h over head {
    %x = kernel.read %q at %h : memref<128xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len slot %slot scales %ks, %vs at %h bound 64 : !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, memref<1xi32>, memref<1xi64>, memref<2xf32>, memref<1xf32>, !kernel.item -> !kernel.kv_stream<64, f8E4M3FN>
    %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f8E4M3FN> -> !kernel.tile<1x66xf32>
    %k = kernel.quantize %x by %ks at %h : !kernel.tile<64xf16>, memref<2xf32>, !kernel.item -> !kernel.tile<64xf8E4M3FN>
    %v = kernel.quantize %x by %vs : !kernel.tile<64xf16>, memref<1xf32> -> !kernel.tile<64xf8E4M3FN>
    %a = kernel.attend_new %p, %x, %k, %v slot %slot scale 1.0 : !kernel.tile<1x66xf32>, !kernel.tile<64xf16>, !kernel.tile<64xf8E4M3FN>, !kernel.tile<64xf8E4M3FN>, memref<1xi64> -> !kernel.tile<1x66xf32>
    %y, %l = kernel.normalize %a : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
    kernel.append %k, %v to %c slot %slot at %h : !kernel.tile<64xf8E4M3FN>, !kernel.tile<64xf8E4M3FN>, !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, memref<1xi64>, !kernel.item
    kernel.write %y, %o at %h : !kernel.tile<64xf16>, memref<128xf16>
  }
  kernel.return
}

// -----

kernel.func @no_scales(%q: memref<128xf16>, %c: !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, %slot: memref<1xi64>, %len: memref<1xi32>, %ks: memref<2xf32>, %vs: memref<1xf32>, %o: memref<128xf16>) axes(head = 2 @grid) plan() {
  kernel.for_items %h over head {
    %x = kernel.read %q at %h : memref<128xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{needs the scales of '!kernel.cache<heads = 2, dim = 64, f8E4M3FN>': `scales %k_scale, %v_scale`}}
    %kv = kernel.load_cache %c tokens %len slot %slot at %h bound 64 : !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, memref<1xi32>, memref<1xi64>, !kernel.item -> !kernel.kv_stream<64, f8E4M3FN>
    %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f8E4M3FN> -> !kernel.tile<1x66xf32>
  }
  kernel.return
}

// -----

kernel.func @three_scales(%q: memref<128xf16>, %c: !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, %slot: memref<1xi64>, %len: memref<1xi32>, %ks: memref<3xf32>, %vs: memref<1xf32>, %o: memref<128xf16>) axes(head = 2 @grid) plan() {
  kernel.for_items %h over head {
    %x = kernel.read %q at %h : memref<128xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{has scales 'memref<3xf32>'; 1 or 2, the heads, of f32 are possible}}
    %kv = kernel.load_cache %c tokens %len slot %slot scales %ks, %vs at %h bound 64 : !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, memref<1xi32>, memref<1xi64>, memref<3xf32>, memref<1xf32>, !kernel.item -> !kernel.kv_stream<64, f8E4M3FN>
    %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f8E4M3FN> -> !kernel.tile<1x66xf32>
  }
  kernel.return
}

// -----

kernel.func @unrounded(%q: memref<128xf16>, %c: !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, %slot: memref<1xi64>, %len: memref<1xi32>, %ks: memref<2xf32>, %vs: memref<1xf32>, %o: memref<128xf16>) axes(head = 2 @grid) plan() {
  kernel.for_items %h over head {
    %x = kernel.read %q at %h : memref<128xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{stores '!kernel.tile<64xf16>' in '!kernel.cache<heads = 2, dim = 64, f8E4M3FN>': rows of f8E4M3FN are those of a kernel.quantize}}
    kernel.append %x, %x to %c slot %slot at %h : !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, memref<1xi64>, !kernel.item
  }
  kernel.return
}

// -----

kernel.func @no_head(%q: memref<128xf16>, %c: !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, %slot: memref<1xi64>, %len: memref<1xi32>, %ks: memref<2xf32>, %vs: memref<1xf32>, %o: memref<128xf16>) axes(head = 2 @grid) plan() {
  kernel.for_items %h over head {
    %x = kernel.read %q at %h : memref<128xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{has 2 scales for 1 items; that does not divide}}
    %k = kernel.quantize %x by %ks : !kernel.tile<64xf16>, memref<2xf32> -> !kernel.tile<64xf8E4M3FN>
  }
  kernel.return
}

// -----

kernel.func @other_user(%q: memref<128xf16>, %c: !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, %slot: memref<1xi64>, %len: memref<1xi32>, %ks: memref<2xf32>, %vs: memref<1xf32>, %o: memref<128xf16>) axes(head = 2 @grid) plan() {
  kernel.for_items %h over head {
    %x = kernel.read %q at %h : memref<128xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{gives a tile of f8E4M3FN to kernel.elementwise; kernel.append and kernel.attend_new take one}}
    %k = kernel.quantize %x by %vs : !kernel.tile<64xf16>, memref<1xf32> -> !kernel.tile<64xf8E4M3FN>
    %y = kernel.elementwise add %k, %k : !kernel.tile<64xf8E4M3FN>, !kernel.tile<64xf8E4M3FN> -> !kernel.tile<64xf16>
  }
  kernel.return
}

// -----

kernel.func @f32_cache(%q: memref<128xf16>, %c: !kernel.cache<heads = 2, dim = 64, f8E4M3FN>, %slot: memref<1xi64>, %len: memref<1xi32>, %ks: memref<2xf32>, %vs: memref<1xf32>, %o: memref<128xf16>) axes(head = 2 @grid) plan() {
  kernel.for_items %h over head {
    %x = kernel.read %q at %h : memref<128xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{gives '!kernel.tile<64xf32>'; caches hold f16, bf16 and f8E4M3FN}}
    %k = kernel.quantize %x by %vs : !kernel.tile<64xf16>, memref<1xf32> -> !kernel.tile<64xf32>
  }
  kernel.return
}

// -----

kernel.func @other_softmax(%q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %slot: memref<1xi64>, %len: memref<1xi32>, %s: memref<1xf32>) axes() plan() {
  %x = kernel.read %q : memref<64xf16> -> !kernel.tile<64xf16>
  %kv = kernel.load_cache %c tokens %len slot %slot bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, memref<1xi64> -> !kernel.kv_stream<64, f16>
  %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32>
  %k = kernel.quantize %x by %s : !kernel.tile<64xf16>, memref<1xf32> -> !kernel.tile<64xf8E4M3FN>
  // expected-error@+1 {{takes '!kernel.tile<64xf8E4M3FN>', but its softmax is over no kernel.load_cache with `scales`}}
  %a = kernel.attend_new %p, %x, %k, %k slot %slot scale 1.0 : !kernel.tile<1x66xf32>, !kernel.tile<64xf16>, !kernel.tile<64xf8E4M3FN>, !kernel.tile<64xf8E4M3FN>, memref<1xi64> -> !kernel.tile<1x66xf32>
  kernel.return
}
