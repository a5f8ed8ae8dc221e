// Plans and machines that cannot be: the nearest name, or what is required and the limit. More in PlanTest.
// RUN: not cfc-opt %s --attn-plan=plan=aut 2>&1 | FileCheck %s --check-prefix=NAME
// NAME: plan 'aut' is neither auto, random:SEED nor a readable file; did you mean 'auto'?
// RUN: not cfc-opt %s --attn-plan=plan=random:x 2>&1 | FileCheck %s --check-prefix=SEED
// SEED: 'x' is no seed; random:7 draws a plan
// RUN: not cfc-opt %s --attn-plan=plan=%inputs 2>&1 | FileCheck %s --check-prefix=FOLDER
// FOLDER: is neither auto, random:SEED nor a readable file
// RUN: not cfc-opt %s --attn-plan=machine=h2000 2>&1 | FileCheck %s --check-prefix=MACHINE
// MACHINE: machine 'h2000' is neither h100, {{.*}}nor a readable file
// RUN: not cfc-opt %s --attn-plan=plan=%inputs/attn-plan.plan 2>&1 | FileCheck %s --check-prefix=OTHER
// OTHER: attn-plan.plan:{{[0-9]+}}:7: error: the plan is for another graph: @small; this is @one
// RUN: echo 'graph one' > %t.plan && echo 'kernel 0: ring_stages = 64, tile_columns = 1024' >> %t.plan
// RUN: not cfc-opt %s --attn-plan=plan=%t.plan 2>&1 | FileCheck %s --check-prefix=SHARED
// SHARED: no plan for h200: kernel 0 needs {{[0-9]+}} bytes of shared memory a CTA; {{[0-9]+}} are the limit with ctas_per_sm =
// RUN: echo 'graph one' > %t.plan && echo 'op linear(%%y): gathr = push' >> %t.plan
// RUN: not cfc-opt %s --attn-plan=plan=%t.plan 2>&1 | FileCheck %s --check-prefix=KEY
// KEY: .plan:2:16: error: unknown key 'gathr'; did you mean 'gather'?
// RUN: echo 'graph one' > %t.plan && echo 'op linear(%%z): split = rows' >> %t.plan
// RUN: not cfc-opt %s --attn-plan=plan=%t.plan 2>&1 | FileCheck %s --check-prefix=OP
// OP: .plan:2:4: error: the plan names an operation that the graph does not have: linear(%z); did you mean linear(%y)?
// RUN: echo 'graph one' > %t.plan && echo 'kernel 0: part = 1, stacked = 1' >> %t.plan
// RUN: not cfc-opt %s --attn-plan=plan=%t.plan 2>&1 | FileCheck %s --check-prefix=PANELS
// PANELS: .plan:2:31: error: no plan for h200: kernel 0 has stacked = 1; that takes a kernel of one linear of several weights alike, whose results are only stored
// RUN: echo '{"name": "m", "sms": 1, "bandwidth": -1, "resident_clusters": {"1": {"1": 1}}}' > %t.json
// RUN: not cfc-opt %s --attn-plan=machine=%t.json 2>&1 | FileCheck %s --check-prefix=JSON
// JSON: .json:1:25: error: 'bandwidth' needs a number above 0
attn.graph @one(%x: tensor<1x1024xf16>, %w: tensor<64x1024xf16>) -> tensor<1x64xf16> {
  %y = attn.linear %x, [%w]
  attn.return %y
}
