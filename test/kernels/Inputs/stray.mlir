kernel.func @stray() axes() plan() {
  kernel.return
}
simt.kernel @other(%t: !simt.ptr<global>, %w: !simt.ptr<global>) attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
  simt.return
}
