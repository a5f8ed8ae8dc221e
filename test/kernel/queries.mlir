// Several query tokens a request: what operations on caches demand then.
// RUN: cfc-opt %s -split-input-file -verify-diagnostics

// Three tokens of two requests on two heads each.
kernel.func @good(%q: memref<384xf16>, %k: memref<192xf16>, %slot: memref<3xi64>, %starts: memref<3xi32>, %mask: memref<3xi64>, %len: memref<2xi32>,
    %c: !kernel.cache<heads = 2, dim = 32, requests = 2, f16>, %o: memref<384xf32>) axes(head = 6 @grid) plan(ring_stages = 4) {
  kernel.for_items %h over head {
    %qt = kernel.read %q at %h : memref<384xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len slot %slot queries %starts mask %mask at %h bound 64
      : !kernel.cache<heads = 2, dim = 32, requests = 2, f16>, memref<2xi32>, memref<3xi64>, memref<3xi32>, memref<3xi64>, !kernel.item -> !kernel.kv_stream<32, f16>
    %s = kernel.attend %qt, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<32, f16> -> !kernel.tile<2x34xf32>
    %t = kernel.outer %h of 2
    %n = kernel.attend_new %s, %qt, %k, %k slot %slot at %t scale 1.0
      : !kernel.tile<2x34xf32>, !kernel.tile<64xf16>, memref<192xf16>, memref<192xf16>, memref<3xi64>, !kernel.item -> !kernel.tile<2x34xf32>
    kernel.write %n, %o at %h : !kernel.tile<2x34xf32>, memref<384xf32>
  }
  kernel.return
}

// -----

kernel.func @starts(%q: memref<384xf16>, %starts: memref<2xi32>, %len: memref<2xi32>, %c: !kernel.cache<heads = 2, dim = 32, requests = 2, f16>,
    %o: memref<384xf32>) axes(head = 6 @grid) plan(ring_stages = 4) {
  kernel.for_items %h over head {
    %qt = kernel.read %q at %h : memref<384xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{needs the starts of 2 requests' query tokens in memory of i32 [3], not 'memref<2xi32>'}}
    %kv = kernel.load_cache %c tokens %len queries %starts at %h bound 64
      : !kernel.cache<heads = 2, dim = 32, requests = 2, f16>, memref<2xi32>, memref<2xi32>, !kernel.item -> !kernel.kv_stream<32, f16>
    %s = kernel.attend %qt, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<32, f16> -> !kernel.tile<2x34xf32>
    kernel.write %s, %o at %h : !kernel.tile<2x34xf32>, memref<384xf32>
  }
  kernel.return
}

// -----

kernel.func @items(%q: memref<384xf16>, %starts: memref<3xi32>, %len: memref<2xi32>, %c: !kernel.cache<heads = 2, dim = 32, requests = 2, f16>,
    %o: memref<384xf32>) axes(head = 5 @grid) plan(ring_stages = 4) {
  kernel.for_items %h over head {
    %qt = kernel.read %q at %h : memref<384xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{takes 5 items; each query token has the 2 heads of}}
    %kv = kernel.load_cache %c tokens %len queries %starts at %h bound 64
      : !kernel.cache<heads = 2, dim = 32, requests = 2, f16>, memref<2xi32>, memref<3xi32>, !kernel.item -> !kernel.kv_stream<32, f16>
    %s = kernel.attend %qt, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<32, f16> -> !kernel.tile<2x34xf32>
    kernel.write %s, %o at %h : !kernel.tile<2x34xf32>, memref<384xf32>
  }
  kernel.return
}

// -----

kernel.func @rows(%k: memref<8320xf16>, %slot: memref<130xi64>, %starts: memref<3xi32>, %c: !kernel.cache<heads = 2, dim = 32, requests = 2, f16>)
    axes(head = 260 @grid) plan() {
  kernel.for_items %h over head {
    %t = kernel.read %k at %h : memref<8320xf16> -> !kernel.tile<32xf16>
    // expected-error@+1 {{has 130 query tokens; 1 to 64 are possible}}
    kernel.append %t, %t to %c slot %slot queries %starts at %h
      : !kernel.tile<32xf16>, !kernel.tile<32xf16>, !kernel.cache<heads = 2, dim = 32, requests = 2, f16>, memref<130xi64>, memref<3xi32>, !kernel.item
  }
  kernel.return
}

// -----

kernel.func @slots(%k: memref<192xf16>, %slot: memref<2xi64>, %starts: memref<3xi32>, %c: !kernel.cache<heads = 2, dim = 32, requests = 2, f16>)
    axes(head = 6 @grid) plan() {
  kernel.for_items %h over head {
    %t = kernel.read %k at %h : memref<192xf16> -> !kernel.tile<32xf16>
    // expected-error@+1 {{needs the slot of each of 3 query tokens, not 'memref<2xi64>'}}
    kernel.append %t, %t to %c slot %slot queries %starts at %h
      : !kernel.tile<32xf16>, !kernel.tile<32xf16>, !kernel.cache<heads = 2, dim = 32, requests = 2, f16>, memref<2xi64>, memref<3xi32>, !kernel.item
  }
  kernel.return
}

// -----

kernel.func @mask(%q: memref<256xf16>, %mask: memref<2xi64>, %len: memref<2xi32>, %c: !kernel.cache<heads = 2, dim = 32, requests = 2, f16>,
    %o: memref<384xf32>) axes(head = 4 @grid) plan(ring_stages = 4) {
  kernel.for_items %h over head {
    %qt = kernel.read %q at %h : memref<256xf16> -> !kernel.tile<64xf16>
    // expected-error@+1 {{has a mask of query tokens, but one of them a request}}
    %kv = kernel.load_cache %c tokens %len mask %mask at %h bound 64
      : !kernel.cache<heads = 2, dim = 32, requests = 2, f16>, memref<2xi32>, memref<2xi64>, !kernel.item -> !kernel.kv_stream<32, f16>
    %s = kernel.attend %qt, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<32, f16> -> !kernel.tile<2x34xf32>
    kernel.write %s, %o at %h : !kernel.tile<2x34xf32>, memref<384xf32>
  }
  kernel.return
}

// -----

kernel.func @one_token(%q: memref<384xf16>, %k: memref<192xf16>, %slot: memref<3xi64>, %starts: memref<3xi32>, %len: memref<2xi32>,
    %c: !kernel.cache<heads = 2, dim = 32, requests = 2, f16>, %o: memref<384xf32>) axes(head = 6 @grid) plan(ring_stages = 4) {
  kernel.for_items %h over head {
    %qt = kernel.read %q at %h : memref<384xf16> -> !kernel.tile<64xf16>
    %kt = kernel.read %k at %h : memref<192xf16> -> !kernel.tile<32xf16>
    %kv = kernel.load_cache %c tokens %len slot %slot queries %starts at %h bound 64
      : !kernel.cache<heads = 2, dim = 32, requests = 2, f16>, memref<2xi32>, memref<3xi64>, memref<3xi32>, !kernel.item -> !kernel.kv_stream<32, f16>
    %s = kernel.attend %qt, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<32, f16> -> !kernel.tile<2x34xf32>
    %t = kernel.outer %h of 2
    // expected-error@+1 {{needs K and V of all query tokens, memory of floats [192], not '!kernel.tile<32xf16>'}}
    %n = kernel.attend_new %s, %qt, %kt, %kt slot %slot at %t scale 1.0
      : !kernel.tile<2x34xf32>, !kernel.tile<64xf16>, !kernel.tile<32xf16>, !kernel.tile<32xf16>, memref<3xi64>, !kernel.item -> !kernel.tile<2x34xf32>
    kernel.write %n, %o at %h : !kernel.tile<2x34xf32>, memref<384xf32>
  }
  kernel.return
}

// -----

kernel.func @memory_without_starts(%q: memref<256xf16>, %k: memref<128xf16>, %slot: memref<2xi64>, %len: memref<2xi32>,
    %c: !kernel.cache<heads = 2, dim = 32, requests = 2, f16>, %o: memref<384xf32>) axes(head = 4 @grid) plan(ring_stages = 4) {
  kernel.for_items %h over head {
    %qt = kernel.read %q at %h : memref<256xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len slot %slot at %h bound 64
      : !kernel.cache<heads = 2, dim = 32, requests = 2, f16>, memref<2xi32>, memref<2xi64>, !kernel.item -> !kernel.kv_stream<32, f16>
    %s = kernel.attend %qt, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<32, f16> -> !kernel.tile<2x34xf32>
    %t = kernel.outer %h of 2
    // expected-error@+1 {{takes K and V from memory where its softmax is over a kernel.load_cache with `queries`}}
    %n = kernel.attend_new %s, %qt, %k, %k slot %slot at %t scale 1.0
      : !kernel.tile<2x34xf32>, !kernel.tile<64xf16>, memref<128xf16>, memref<128xf16>, memref<2xi64>, !kernel.item -> !kernel.tile<2x34xf32>
    kernel.write %n, %o at %h : !kernel.tile<2x34xf32>, memref<384xf32>
  }
  kernel.return
}
