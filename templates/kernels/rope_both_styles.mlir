// Rotates the heads of 4 tokens by a row of a table, in both styles of pairing.
//
// A tile holds the 3 heads of 20 numbers of one of 4 tokens (the work items). Table row p holds cos in its first half and
// sin in its second; pair j of a head is (x[j], x[j + 10]) for half_split, (x[2 j], x[2 j + 1]) for interleaved.
// All tokens stand at the one position that memory holds.
//
//   cfc run rope_both_styles.mlir --device=emu --input x=x.npy --input table=table.npy --input position=position.npy --output out
kernel.func @rope_both_styles(%x: memref<4x60xf16>, %table: memref<32x20xf32>, %position: memref<1xi32>,
    %halves: memref<4x60xf16>, %pairs: memref<4x60xf32>)
    axes(token = 4 @grid) plan() {
  kernel.for_items %i over token {
    %t = kernel.read %x at %i : memref<4x60xf16> -> !kernel.tile<60xf16>
    %h = kernel.rope half_split %t, %table position %position : !kernel.tile<60xf16>, memref<32x20xf32>, memref<1xi32> -> !kernel.tile<60xf16>
    %p = kernel.rope interleaved %t, %table position %position : !kernel.tile<60xf16>, memref<32x20xf32>, memref<1xi32> -> !kernel.tile<60xf32>
    kernel.write %h, %halves at %i : !kernel.tile<60xf16>, memref<4x60xf16>
    kernel.write %p, %pairs at %i : !kernel.tile<60xf32>, memref<4x60xf32>
  }
  kernel.return
}
