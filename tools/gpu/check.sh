#!/usr/bin/env bash
# Checks on a GPU what CI, which has none, cannot. README.md beside this says what each step shows.
. "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"

usage() {
  cat <<'END'
Usage: tools/gpu/check.sh [OPTION]... [STEP]...

Checks compiled attention blocks at full size on this machine's GPU (Hopper). Needs the GPU's driver, ptxas, Python
with torch and transformers, and compute-sanitizer for the step memcheck; nothing is built or installed.

Steps (all by default):
  kernels       templates/kernels give what a script computes in double precision
  verify        cfc verify of every block, in f16 and bf16, at lengths from 0 to 16384
  plans         cfc verify of cluster sizes 1 to 16 and of random plans
  bits          the same bits for all these plans, at every length, run after run
  torch         errors of cfc and of PyTorch in eager mode on the same inputs
  transformers  a layer of transformers at the true size, through the ctypes loader
  families      imported blocks of every family against the layers of transformers
  graph         replays of a captured CUDA graph, rebinding, two streams
  variants      bundles with several variants: the same bits from each, chosen by hint or kept by a captured graph
  batches       a request's bits alone and in every batch, graph, variant and plan of bundles of several batches
  growing       a captured graph of 8 requests that grow to 9000 tokens, in pages that are added
  pdl           the same bits however kernels start
  streams       two graphs on two streams, then one beside large matrix products: nothing hangs or differs
  edges         extreme logits; slots, lengths and positions out of bound
  pack          packing and unpacking of weights, also through the host; blocks that read packed weights
  memcheck      compute-sanitizer's memcheck over whole blocks

  --cfc=FILE      the program (build/bin/cfc)
  --library=FILE  the runtime (build/lib/libcfc_runtime.so.1)
  --python=FILE   Python with torch and transformers (python3)
  --out=DIR       where logs, graphs and bundles go (build/gpu); old logs there are replaced
  --plans=N       plans drawn by seed, for each block and type (30)
  --seconds=N     time of each run of the step streams (60)
  --jobs=N        cases at a time (one for each core)

Exit codes: 0 all passed; 1 a check failed; 2 bad usage; 3 something is missing.
Example: tools/gpu/check.sh --plans=5 verify bits
END
}

here="$root/tools/gpu"
cfc="$build/bin/cfc"
library="$build/lib/libcfc_runtime.so.1"
python=python3
out="$build/gpu"
plans=30
seconds=60
parallel=$(nproc)
lengths=0,1,5,127,128,129,1000,4096,16384
all_steps=(kernels verify torch bits transformers families graph edges pack variants batches growing pdl streams memcheck plans)
steps=()

for argument in "$@"; do
  case "$argument" in
    --help | -h) usage && exit 0 ;;
    --cfc=?*) cfc=${argument#*=} ;;
    --library=?*) library=${argument#*=} ;;
    --python=?*) python=${argument#*=} ;;
    --out=?*) out=${argument#*=} ;;
    --plans=*[!0-9]* | --jobs=*[!0-9]* | --jobs=0) fail 2 "'$argument': a number is needed" ;;
    --plans=?*) plans=${argument#*=} ;;
    --jobs=?*) parallel=${argument#*=} ;;
    --seconds=*[!0-9]* | --seconds=0) fail 2 "'$argument': a number is needed" ;;
    --seconds=?*) seconds=${argument#*=} ;;
    kernels | verify | plans | bits | torch | transformers | families | graph | edges | pack | variants | batches | growing | pdl | streams | memcheck) steps+=("$argument") ;;
    -*) fail 2 "unknown option '$argument'; try --help" ;;
    *) fail 2 "unknown step '$argument'; try --help" ;;
  esac
done
[[ ${#steps[@]} -gt 0 ]] || steps=("${all_steps[@]}")

# First, so that what is missing shows before the first step and not in the middle.
check_machine() {
  [[ -x $cfc ]] || fail 3 "no program at $cfc: build it, or name it with --cfc=FILE"
  command -v nvidia-smi >/dev/null || fail 3 "no nvidia-smi: this machine has no GPU"
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || fail 3 "the GPU does not answer"
  local step
  for step in "${steps[@]}"; do
    case "$step" in
      bits | torch | transformers | families | graph | edges | pack | variants | growing | pdl | streams)
        [[ -e $library ]] || fail 3 "no runtime at $library: build it, or name it with --library=FILE"
        "$python" -c 'import torch' 2>/dev/null || fail 3 "$python has no torch: name one that has with --python=FILE"
        ;;
      memcheck) command -v compute-sanitizer >/dev/null || fail 3 "no compute-sanitizer on the PATH" ;;
    esac
  done
}

# run_case NAME SECONDS COMMAND...: runs the command with its output in a log, and notes how it ended.
run_case() {
  local name=$1 limit=$2 code=0 begin=$SECONDS
  shift 2
  timeout -k 10 "$limit" "$@" >"$out/logs/${name//[\/:]/-}.log" 2>&1 || code=$?
  printf '%s\t%s\t%s\n' "$code" "$((SECONDS - begin))" "$name" >>"$out/results.tsv"
}

running=0
# start NAME SECONDS COMMAND...: the same beside what already runs. NAME is STEP/CASE.
start() {
  if ((running >= parallel)); then
    wait -n || true
    running=$((running - 1))
  fi
  run_case "$@" &
  running=$((running + 1))
}

verify() { # NAME SECONDS ARGUMENT...
  local name=$1 limit=$2
  shift 2
  start "$name" "$limit" "$cfc" verify --device=gpu "$@"
}

python_step() { # STEP [LIMIT=SECONDS] SCRIPT ARGUMENT...
  local step=$1 limit=600 script
  shift
  if [[ $1 == LIMIT=* ]]; then
    limit=${1#*=}
    shift
  fi
  script=$1
  shift
  start "$step/all" "$limit" "$python" -u "$here/$script" --cfc="$cfc" --library="$library" --work="$out/$step" "$@"
}

start_kernels() {
  local kernel name
  for kernel in "$root"/templates/kernels/*.mlir; do
    name=$(basename -- "$kernel" .mlir)
    start "kernels/$name" 300 env PATH="$(dirname -- "$cfc"):$PATH" "$python" "$root/test/kernels/expected.py" run \
      "$kernel" "$out/kernels/$name" --device=gpu 0 1 2
  done
}

start_verify() {
  verify verify/llama2_7b_f16 300 "$root/templates/graphs/llama2_7b_attention.mlir" --len="$lengths"
  verify verify/llama2_7b_bf16 300 "$root/templates/graphs/llama2_7b_attention_bf16.mlir" --len="$lengths"
  local graph
  for graph in "$out"/graphs/llama3_*.mlir; do
    verify "verify/$(basename -- "$graph" .mlir)" 300 "$graph" --len="$lengths"
  done
  # Several query tokens a request, trees of them, by the planner's choice and others.
  local trees=$root/templates/graphs/llama3_8b_attention_speculation.mlir
  verify verify/llama3_8b_speculation 300 "$trees" --len=0,1,15,16,129,1000,8000
  # Caches of f8E4M3FN in pages, and in rows of 24 bytes, which threads copy.
  local fp8=$root/templates/graphs/llama3_8b_attention_b32_fp8.mlir
  verify verify/llama3_8b_fp8 300 "$fp8" --len=0,1,63,64,65,1000,8000
  verify verify/fp8_rows_of_24 300 "$fp8_rows" --len=0,1,15,16,17,129,300
  local seed
  for seed in 1 2 3; do
    verify "verify/llama3_8b_fp8 random:$seed" 300 "$fp8" --len=17,500 --plan="random:$seed" --seed="$seed"
    verify "verify/llama3_8b_speculation random:$seed" 300 "$trees" --len=17,500 --plan="random:$seed" --seed="$seed"
  done
}

start_plans() {
  local graph name part seed plan
  for graph in "$out"/graphs/*.mlir; do
    name=$(basename -- "$graph" .mlir)
    for part in 1 2 4 8 16; do
      plan="$out/graphs/${name}_part$part.plan"
      # Only the axis is fixed; the planner chooses the rest.
      "$cfc" compile "$graph" --emit=plan -o - |
        sed -E "/^kernel [1-9]/d; s/^kernel 0: .*/kernel 0: part = $part/; s/^(op .*): .*/\1: kernel = 0/" >"$plan"
      verify "plans/$name part=$part" 300 "$graph" --len=129,1000 --plan="$plan"
    done
    for ((seed = 1; seed <= plans; ++seed)); do
      verify "plans/$name random:$seed" 300 "$graph" --len=129,1000 --plan="random:$seed"
    done
  done
}

memcheck() { # CASE GRAPH ARGUMENT...
  local name=$1 graph=$2
  shift 2
  start "memcheck/$name" 300 compute-sanitizer --tool=memcheck --error-exitcode=1 \
    "$cfc" verify --device=gpu "$out/graphs/$graph.mlir" --len=129 "$@"
}

# Besides the planner's choice: several kernels, and sums over the cluster by bulk copy and by butterfly.
start_memcheck() {
  local graph
  for graph in "$out"/graphs/*.mlir; do
    graph=$(basename -- "$graph" .mlir)
    memcheck "$graph" "$graph"
  done
  start memcheck/fp8_rows_of_24 300 compute-sanitizer --tool=memcheck --error-exitcode=1 \
    "$cfc" verify --device=gpu "$fp8_rows" --len=129
  memcheck "llama2_7b_f16 random:1" llama2_7b_f16 --plan=random:1
  memcheck "llama2_7b_bf16 random:7" llama2_7b_bf16 --plan=random:7
}

# The second time without the driver's compiler of PTX: the runtime then packs through host memory.
start_pack() {
  python_step pack packing.py
  start pack/host 600 env CUDA_DISABLE_PTX_JIT=1 "$python" -u "$here/packing.py" --small --cfc="$cfc" \
    --library="$library" --work="$out/pack_host" --blocks=llama3_8b
  local graph
  for graph in "$out"/graphs/*_f16.mlir; do
    verify "pack/$(basename -- "$graph" .mlir)" 300 "$graph" --weight-layout=packed --len=0,1,129,1000
  done
}

start_step() {
  case "$1" in
    kernels) start_kernels ;;
    verify) start_verify ;;
    plans) start_plans ;;
    memcheck) start_memcheck ;;
    bits) python_step bits same_bits.py --plans="$plans" ;;
    torch) python_step torch compare_torch.py ;;
    transformers) python_step transformers transformers_layer.py ;;
    families)
      start families/true 1800 "$python" -u "$here/hf_families.py" --cfc="$cfc" --library="$library" --work="$out/families"
      ;;
    graph) python_step graph captured_graph.py ;;
    variants) python_step variants variants.py ;;
    batches) start batches/all 1200 "$here/batch_bits.sh" --cfc="$cfc" --out="$out/batch_bits" ;;
    growing) python_step growing growing.py ;;
    pdl) python_step pdl LIMIT=1200 pdl_bits.py ;;
    streams) python_step streams LIMIT=$((300 + 10 * seconds)) two_streams.py --seconds="$seconds" ;;
    edges) python_step edges edge_cases.py ;;
    pack) start_pack ;;
  esac
}

# Prints one line for each step, and the log's end of each case that failed.
report() {
  local step code took name cases failed=0
  for step in "${steps[@]}"; do
    cases=$(grep -c "	$step/" "$out/results.tsv" || true)
    printf '%-13s %s of %s cases passed\n' "$step" "$(grep -c "^0	.*	$step/" "$out/results.tsv" || true)" "$cases"
  done
  while IFS=$'\t' read -r code took name; do
    [[ $code -ne 0 ]] || continue
    failed=$((failed + 1))
    say "-- $name: exit $code after $took s"
    tail -n 12 -- "$out/logs/${name//[\/:]/-}.log"
  done <"$out/results.tsv"
  say "logs: $out/logs"
  [[ $failed -eq 0 ]] || fail 1 "$failed cases failed"
  say "passed"
}

check_machine
mkdir -p -- "$out"
out=$(cd -- "$out" && pwd -P)
# Attention with caches of f8E4M3FN whose rows have 24 and 40 bytes: no tensor copy takes them, threads do.
fp8_rows="$out/fp8_rows_of_24.mlir"
rm -rf -- "$out/logs" "$out/graphs"
mkdir -p -- "$out/logs"
: >"$out/results.tsv"
"$python" "$here/blocks.py" "$out/graphs"
"$python" "$root/test/numerics/Inputs/batch_graph.py" 3 2 4 24 16 40 fp8 >"$fp8_rows"
for step in "${steps[@]}"; do start_step "$step"; done
wait
report
