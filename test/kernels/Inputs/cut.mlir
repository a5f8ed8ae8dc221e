kernel.func @a(%x: memref<64xf32>) axes() plan() {
