#!/usr/bin/env bash
# From a fresh checkout to a compiled, run and checked attention block.
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'END'
Usage: tools/quickstart.sh [--yes] [--offline] [--device=auto|gpu|emu]

Installs what cfc needs, builds it, compiles the attention block of Llama 2 7B for an H100 or H200, runs it and
checks its numbers. The last line is "verified" if all of that worked.

  --yes          install missing Debian packages without asking (also as root and with CI=true)
  --offline      use only what is there
  --device=WHAT  where to run: a GPU if there is one, else the emulator (auto, the default)

Example: tools/quickstart.sh --yes
END
}

graph="templates/graphs/llama2_7b_attention.mlir"
bundle="build/llama2_7b_attention.cfk"
device=auto

for argument in "$@"; do
  case "$argument" in
    --help | -h) usage && exit 0 ;;
    --device=auto | --device=gpu | --device=emu) device=${argument#*=} ;;
    *) common_option "$argument" || fail 2 "unknown option '$argument'; try --help" ;;
  esac
done

# Prints the command as a user would type it in the source tree, then runs it there.
show_and_run() {
  say "\$ $*"
  (cd -- "$root" && "$@")
}

build_programs() {
  [[ -x $build/bin/cfc ]] || say "this takes some minutes the first time"
  build_targets cfc cfc_runtime
}

compile_graph() { show_and_run build/bin/cfc compile "$graph" --target=sm_90a -o "$bundle"; }

show_plan() { show_and_run build/bin/cfc explain "$bundle"; }

run_bundle() { show_and_run build/bin/cfc run "$bundle" --device="$device"; }

verify_bundle() { show_and_run build/bin/cfc verify "$bundle" --device="$device" --len=0,127,1000; }

step "Debian packages" ensure_packages "${build_packages[@]}"
step "CUDA's ptxas" ensure_cuda
step "Configure" configure
step "Build" build_programs
step "Compile the attention block" compile_graph
step "Its plan" show_plan
step "Run it" run_bundle
step "Check it" verify_bundle
print_times
say "verified"
