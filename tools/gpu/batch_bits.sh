#!/usr/bin/env bash
# A request's bits alone and in batches, over all graphs, variants and plans of bundles for several batch sizes.
. "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"

usage() {
  cat <<'END'
Usage: tools/gpu/batch_bits.sh [OPTION]... [BUNDLE]...

Compiles the attention block of Llama 3 8B with --batch=1,2,4,8, once with rows of each request's own and once with pages
of 16 tokens, by the planner's choice and by drawn plans, and runs `cfc verify --batches` on each bundle. Bundles that are
named are verified instead. Needs cfc, ptxas where something is compiled, and the GPU's driver.

  --cfc=FILE     the program (build/bin/cfc)
  --out=DIR      where bundles and logs go (build/gpu/batch_bits)
  --device=NAME  gpu, or emu with --small (gpu)
  --draws=N      batches drawn for each bundle (20)
  --len=N        most cached tokens of a request (3000)
  --seed=N       of the batches (1)
  --small        a block of hidden size 96

Exit codes: 0 all bits are the same; 1 they are not; 2 bad usage; 3 something is missing.
Example: tools/gpu/batch_bits.sh --small --device=emu --draws=2 --len=100
END
}

cfc="$build/bin/cfc"
out="$build/gpu/batch_bits"
device=gpu
draws=20
length=3000
seed=1
small=false
bundles=()

for argument in "$@"; do
  case "$argument" in
    --help | -h) usage && exit 0 ;;
    --cfc=?*) cfc=${argument#*=} ;;
    --out=?*) out=${argument#*=} ;;
    --device=gpu | --device=emu) device=${argument#*=} ;;
    --draws=*[!0-9]* | --len=*[!0-9]* | --seed=*[!0-9]*) fail 2 "'$argument': a number is needed" ;;
    --draws=?*) draws=${argument#*=} ;;
    --len=?*) length=${argument#*=} ;;
    --seed=?*) seed=${argument#*=} ;;
    --small) small=true ;;
    -*) fail 2 "unknown option '$argument'; try --help" ;;
    *) bundles+=("$argument") ;;
  esac
done
[[ -x $cfc ]] || fail 3 "no program at $cfc: build it, or name it with --cfc=FILE"
mkdir -p "$out"

graph() { # PAGE [fp8]: the path of a graph
  if $small; then
    python3 "$root/test/numerics/Inputs/block_graph.py" 8 "$@" >"$out/small_$*.mlir"
    printf '%s\n' "$out/small_$*.mlir"
  elif [[ $# -gt 1 ]]; then
    printf '%s\n' "$root/templates/graphs/llama3_8b_attention_b32_fp8.mlir"
  elif [[ $1 -eq 0 ]]; then
    printf '%s\n' "$root/templates/graphs/llama3_8b_attention_b8.mlir"
  else
    printf '%s\n' "$root/templates/graphs/llama3_8b_attention_b32_paged16.mlir"
  fi
}

compile() { # NAME PAGE OPTION...
  local name=$1 page=$2
  shift 2
  say "compiling $name"
  # shellcheck disable=SC2086
  "$cfc" compile "$(graph $page)" --batch=1,2,4,8 "$@" -o "$out/$name.cfk" || fail 1 "$name was not compiled"
  bundles+=("$out/$name.cfk")
}

if [[ ${#bundles[@]} -eq 0 ]]; then
  compile rows 0 --weights=packed
  compile pages 16 --weights=packed --variant-lengths=256
  compile pages_fp8 "64 fp8" --weights=packed
  compile rows_drawn 0 --plan=random:1
  compile pages_drawn 16 --plan=random:7 --variant-lengths=256
fi

failed=0
for bundle in "${bundles[@]}"; do
  log="$out/$(basename -- "$bundle" .cfk).log"
  code=0
  "$cfc" verify "$bundle" --device="$device" --batches="$draws" --len="$length" --seed="$seed" >"$log" 2>&1 || code=$?
  say "$(basename -- "$bundle"): $(tail -n 1 -- "$log")"
  if [[ $code -ne 0 ]]; then
    failed=$((failed + 1))
    grep -m 10 -e '  graph' -e error "$log" || true
  fi
done
[[ $failed -eq 0 ]] || fail 1 "$failed of ${#bundles[@]} bundles give other bits, or did not run; logs: $out"
say "batch_bits: passed"
