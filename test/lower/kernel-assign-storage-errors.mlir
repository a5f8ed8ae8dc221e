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
