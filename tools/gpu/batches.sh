#!/usr/bin/env bash
# Times one, several and many requests, contiguous and paged, and one rank of a larger model, beside their peers.
. "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"

usage() {
  cat <<'END'
Usage: tools/gpu/batches.sh [OPTION]... [CASE]...

Runs `cfc bench` on the batches of templates/graphs with packed weights and prints one table: floor, stream, cfc, what
is required, torch.compile and FlashInfer (where python3 has them). Takes about two minutes on an H200. A case that
fails or hangs is left out of the table, and why is in the log.

Cases (all by default):
  b1        Llama 3 8B, one request of 1024, 8192 and 32768 tokens
  b8        8 requests of 1024 and of 8192 tokens
  b32       32 requests of 1 to 8192 tokens, drawn by seed
  page64h   the same lengths in shuffled pages of 64 tokens, [page, head, token, dim]
  page64t   [page, token, head, dim]
  page16h   pages of 16 tokens
  page16t
  fp8       as page64h, with caches of f8E4M3FN; cfc alone
  rank      one rank of eight of Llama 3 70B, one request of 8192 tokens

  --cfc=FILE    the program (build/bin/cfc)
  --out=DIR     where table.txt, results.json and log.txt go (build/gpu/batches)
  --replays=N   replays that are timed (20)
  --seed=N      of the drawn lengths (1)
  --no-peers    cfc alone

Exit codes: 0 the table was printed (whatever it says); 2 bad usage; 3 something is missing.
Example: tools/gpu/batches.sh --out=/tmp/batches b32 page16h
END
}

cfc="$build/bin/cfc"
out="$build/gpu/batches"
replays=20
seed=1
peers=true
all_cases=(b1 b8 b32 rank page64h page16h page64t page16t fp8)
cases=()

for argument in "$@"; do
  case "$argument" in
    --help | -h) usage && exit 0 ;;
    --cfc=?*) cfc=${argument#*=} ;;
    --out=?*) out=${argument#*=} ;;
    --replays=*[!0-9]* | --seed=*[!0-9]*) fail 2 "'$argument': a number is needed" ;;
    --replays=?*) replays=${argument#*=} ;;
    --seed=?*) seed=${argument#*=} ;;
    --no-peers) peers=false ;;
    b1 | b8 | b32 | rank | page64h | page64t | page16h | page16t | fp8) cases+=("$argument") ;;
    -*) fail 2 "unknown option '$argument'; try --help" ;;
    *) fail 2 "unknown case '$argument'; try --help" ;;
  esac
done
[[ ${#cases[@]} -gt 0 ]] || cases=("${all_cases[@]}")

[[ -x $cfc ]] || fail 3 "no program at $cfc: build it, or name it with --cfc=FILE"
command -v nvidia-smi >/dev/null || fail 3 "no nvidia-smi: this machine has no GPU"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || fail 3 "the GPU does not answer"

mkdir -p "$out"
: >"$out/log.txt"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TORCHINDUCTOR_CACHE_DIR="$work/inductor" TRITON_CACHE_DIR="$work/triton"

# The first import of torch reads gigabytes; a first case without peers hides some of that.
has_flashinfer=false
if $peers; then
  python3 -c 'import torch, torch._dynamo, torch._inductor.compile_fx' >/dev/null 2>&1 &
  if python3 -c 'import flashinfer' >/dev/null 2>&1; then
    has_flashinfer=true
  else
    say "python3 cannot import flashinfer: its column stays empty"
  fi
fi

# bench NAME ARGUMENT...: one run of cfc bench into NAME.json; false where there is no result.
bench() {
  local name=$1 code=0 begin=$SECONDS
  shift
  printf '\n=== %s: cfc bench %s\n' "$name" "$*" >>"$out/log.txt"
  timeout -k 5 100 "$cfc" bench "$@" --weights=packed --replays="$replays" --json \
    >"$work/$name.part" 2>>"$out/log.txt" </dev/null || code=$?
  printf '=== %s: exit code %s after %s s\n' "$name" "$code" "$((SECONDS - begin))" >>"$out/log.txt"
  [[ $code -eq 0 && -s $work/$name.part ]] && mv "$work/$name.part" "$work/$name.json"
}

# run NAME WITH_PEERS GRAPH LENGTHS ORDER: where peers make it fail, cfc alone.
run() {
  local name=$1 with=$2
  local arguments=("$root/templates/graphs/$3.mlir" --len="$4" --cache-order="$5")
  if $peers && $with && bench "$name" "${arguments[@]}" --baseline; then return; fi
  bench "$name" "${arguments[@]}" || say "$name: no result; $out/log.txt says why"
}

# Pages are timed with peers only for FlashInfer: what torch.compile does is done to contiguous rows, as in b32.
for name in "${cases[@]}"; do
  case "$name" in
    b1) run b1 true llama3_8b_attention_32k 1024,8192,32768 head ;;
    b8) run b8 true llama3_8b_attention_b8 1024,8192 head ;;
    b32) run b32 true llama3_8b_attention_b32 "ragged:1-8192:$seed" head ;;
    rank) run rank true llama3_70b_rank 8192 head ;;
    page64h) run page64h "$has_flashinfer" llama3_8b_attention_b32_paged64 "ragged:1-8192:$seed" head ;;
    page16h) run page16h "$has_flashinfer" llama3_8b_attention_b32_paged16 "ragged:1-8192:$seed" head ;;
    page64t) run page64t "$has_flashinfer" llama3_8b_attention_b32_paged64 "ragged:1-8192:$seed" token ;;
    fp8) run fp8 false llama3_8b_attention_b32_fp8 "ragged:1-8192:$seed" head ;;
    page16t) run page16t "$has_flashinfer" llama3_8b_attention_b32_paged16 "ragged:1-8192:$seed" token ;;
  esac
  # After each case, so that a run that is cut short has a table too.
  python3 "$root/tools/gpu/batches.py" "$work" --results="$out/results.json" >"$out/table.txt" 2>>"$out/log.txt" ||
    say "the table could not be made; $out/log.txt says why"
done
cat "$out/table.txt"
say "$SECONDS s; $out has table.txt, results.json and log.txt"
