#!/usr/bin/env bash
# Writes the reference of dialects and passes from their TableGen files.
set -euo pipefail

if [[ $# -gt 1 || ${1:-} == -* ]]; then
  cat <<'END'
Usage: tools/docs.sh [FOLDER]

Writes one page for each dialect and one for each group of passes to FOLDER (default: docs/reference), with the
mlir-tblgen of LLVM 22.

Example: tools/docs.sh /tmp/reference && diff -r docs/reference /tmp/reference
END
  if [[ ${1:-} == --help || ${1:-} == -h ]]; then exit 0; else exit 2; fi
fi

root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
output=$(realpath -m -- "${1:-$root/docs/reference}")
prefix="$(llvm-config-22 --prefix)"
# Relative names, as they end up in the pages.
cd -- "$root"

generate() {
  "$prefix/bin/mlir-tblgen" -I. -I"$prefix/include" "$@"
}

mkdir -p -- "$output"
rm -f -- "$output"/*.md
for definitions in dialects/*/*Ops.td; do
  dialect=$(basename -- "$(dirname -- "$definitions")")
  generate -gen-dialect-doc -dialect="$dialect" "$definitions" -o "$output/$dialect.md"
done
for definitions in dialects/*/Passes.td compiler/*/Passes.td runtime/*/Passes.td; do
  [[ -e $definitions ]] || continue
  group=$(basename -- "$(dirname -- "$definitions")")
  generate -gen-pass-doc "$definitions" -o "$output/passes-$group.md"
done
# A mark for another renderer, and the blank lines that tblgen leaves at the end.
sed -i -e '/^\[TOC\]$/,+1d' "$output"/*.md
sed -i -e :a -e '/^\n*$/{$d;N;ba' -e '}' "$output"/*.md
