# bundles.sh FILE…: compiles each to a bundle, runs both and compares their outputs.
for file in "$@"; do
  rm -rf bundle direct
  cfc compile "$file" -o kernel.cfk || exit 1
  cfc run kernel.cfk --device=emu --input random:1 --output bundle || exit 1
  cfc run "$file" --device=emu --input random:1 --output direct || exit 1
  diff -r bundle direct || exit 1
done
