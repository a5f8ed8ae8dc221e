#!/usr/bin/env bash
# Builds and runs everything that CI checks.
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'END'
Usage: tools/test.sh [--yes] [--offline] [--tidy=changed|all|off] [--base=REVISION]

Checks formatting, shell scripts and (with clang-tidy) the C++ files that changed, builds everything, and runs
the unit tests and the lit tests.

  --yes        install missing Debian packages without asking (also as root and with CI=true)
  --offline    use only what is there
  --tidy=WHAT  the files that clang-tidy reads: those changed since BASE (default), all, or none
  --base=REV   what "changed" is measured against (default: the upstream branch's merge base, or the last commit)

Example: tools/test.sh --base=HEAD~3
END
}

tidy=changed
base=
# clang-tidy takes 5 to 20 s a file: more than this many changed files are too many for a quick check.
tidy_limit=24

for argument in "$@"; do
  case "$argument" in
    --help | -h) usage && exit 0 ;;
    --tidy=changed | --tidy=all | --tidy=off) tidy=${argument#*=} ;;
    --base=?*) base=${argument#*=} ;;
    *) common_option "$argument" || fail 2 "unknown option '$argument'; try --help" ;;
  esac
done

check_format() {
  local files=()
  mapfile -d '' -t files < <(git -C "$root" ls-files -z -- '*.h' '*.cpp')
  local log="$build/format.log"
  mkdir -p -- "$build"
  (cd -- "$root" && clang-format-22 --dry-run --Werror "${files[@]}" 2>"$log") || {
    sed -n 's/:[0-9]*:[0-9]*: error:.*//p' "$log" | sort -u >&2
    fail 1 "the files above are not formatted: run clang-format-22 -i on them ($log has the details)"
  }
  say "${#files[@]} C++ files are formatted"
}

check_scripts() {
  local files=()
  mapfile -d '' -t files < <(git -C "$root" ls-files -z -- 'tools/*.sh' .ci/run)
  (cd -- "$root" && shellcheck -x -P SCRIPTDIR "${files[@]}") || fail 1 "shellcheck has complaints"
  say "${#files[@]} shell scripts are clean"
}

# Prints the revision that changes are measured against; the empty tree for a history of one commit.
tidy_base() {
  if [[ -n $base ]]; then
    git -C "$root" rev-parse --verify --quiet "$base^{commit}" || fail 2 "no revision '$base'"
    return
  fi
  local upstream head
  head=$(git -C "$root" rev-parse HEAD)
  upstream=$(git -C "$root" merge-base HEAD '@{upstream}' 2>/dev/null || true)
  if [[ -n $upstream && $upstream != "$head" ]]; then
    say "$upstream"
  else
    git -C "$root" rev-parse --verify --quiet HEAD~1 || git -C "$root" hash-object -t tree /dev/null
  fi
}

# tidy_files BASE: prints, NUL-terminated, the C++ files that clang-tidy should read.
tidy_files() {
  if [[ $tidy == all ]]; then
    git -C "$root" ls-files -z -- '*.cpp'
    return
  fi
  git -C "$root" diff -z --name-only --diff-filter=d "$1" -- '*.cpp'
  git -C "$root" ls-files -z --others --exclude-standard -- '*.cpp'
}

run_tidy() {
  local since listed=() files=() file
  since=$(tidy_base)
  mapfile -d '' -t listed < <(tidy_files "$since")
  for file in "${listed[@]}"; do # only files of this build have a compile command
    if grep -qF -- "\"$root/$file\"" "$build/compile_commands.json"; then files+=("$file"); fi
  done
  if [[ $tidy == changed && ${#files[@]} -gt $tidy_limit ]]; then
    say "${#files[@]} files changed; clang-tidy reads the first $tidy_limit (--tidy=all reads all)"
    files=("${files[@]:0:tidy_limit}")
  fi
  if [[ ${#files[@]} -eq 0 ]]; then
    say "no C++ file changed"
    return
  fi
  (cd -- "$root" && printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$(jobs)" clang-tidy-22 --quiet -p "$build" --warnings-as-errors='*' 2>"$build/tidy.log") || {
    cat -- "$build/tidy.log" >&2
    fail 1 "clang-tidy has complaints"
  }
  say "clang-tidy is content with ${#files[@]} files"
}

step "Debian packages" ensure_packages "${build_packages[@]}" "${check_packages[@]}"
step "CUDA's ptxas" ensure_cuda
step "Formatting" check_format
step "Shell scripts" check_scripts
step "Configure" configure
step "Build" build_targets
if [[ $tidy != off ]]; then step "clang-tidy" run_tidy; fi
print_times
# Last, so that its summary closes the output. lit uses every core by itself.
say "== Tests"
cd -- "$root"
CFC_PTXAS=$(find_ptxas)
export CFC_PTXAS
exec ctest --preset default
