# shellcheck shell=bash
# Shared by quickstart.sh and test.sh: options, timed steps, Debian packages, CUDA's programs, configuring, building.
# Source it; it sets `root` (the source tree), `build`, and the switches `assume_yes` and `offline`.

set -euo pipefail

root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
build="$root/build"
assume_yes=false
offline=false

# What compiling needs, as PACKAGE or PACKAGE:COMMAND. A package counts as there if Debian's package is installed
# or its command is found, so that another source of the same program will do.
# shellcheck disable=SC2034  # used by the scripts that source this
build_packages=(
  g++:g++ cmake:cmake ninja-build:ninja ccache:ccache git:git python3:python3
  libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools lld-22 libzstd-dev zlib1g-dev
  libfmt-dev libcli11-dev nlohmann-json3-dev libboost-context1.81-dev libxxhash-dev catch2
)
# What checking needs on top.
# shellcheck disable=SC2034
check_packages=(clang-format-22:clang-format-22 clang-tidy-22:clang-tidy-22 python3-psutil shellcheck:shellcheck)

# The wheels that hold ptxas and NVRTC with its headers, when no CUDA toolkit is found.
cuda_wheels=(nvidia-cuda-nvcc nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl)
cuda_version='13.0.*'

# --- talking ---------------------------------------------------------------------------------------------------

say() { printf '%s\n' "$*"; }

# fail CODE MESSAGE: the exit codes are cfc's: 2 bad usage, 3 this machine lacks something, 4 a tool failed.
fail() {
  local code=$1
  shift
  printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
  current_step= # nothing to add when the script ends
  exit "$code"
}

# Handles an option that both scripts know; returns 1 for any other.
common_option() {
  case "$1" in
    --yes | -y) assume_yes=true ;;
    --offline) offline=true ;;
    *) return 1 ;;
  esac
}

step_names=()
step_times=()
current_step=

# step NAME COMMAND...: runs the command and notes how long it took. Not called inside a condition, where bash
# would ignore the command's failures.
step() {
  current_step=$1
  shift
  say "== $current_step"
  local start=${EPOCHREALTIME//[.,]/}
  "$@"
  local took=$((${EPOCHREALTIME//[.,]/} - start))
  step_names+=("$current_step")
  step_times+=("$took")
  current_step=
}

print_times() {
  say "== Time of each step"
  local i sum=0
  for i in "${!step_names[@]}"; do
    printf '%8.1f s  %s\n' "$((step_times[i] / 100000))e-1" "${step_names[i]}"
    sum=$((sum + step_times[i]))
  done
  printf '%8.1f s  in all\n' "$((sum / 100000))e-1"
}

on_exit() {
  local code=$?
  if [[ $code -ne 0 && -n $current_step ]]; then
    printf '%s: the step "%s" failed with exit code %d; its output is above\n' \
      "$(basename -- "$0")" "$current_step" "$code" >&2
  fi
}
trap on_exit EXIT

# --- Debian packages -------------------------------------------------------------------------------------------

package_present() {
  local package=${1%%:*} command=
  [[ $1 == *:* ]] && command=${1#*:}
  if [[ -n $command ]] && command -v "$command" >/dev/null; then return 0; fi
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]]
}

confirm_install() {
  if $assume_yes || [[ $EUID -eq 0 || ${CI:-} == true ]]; then return; fi
  [[ -t 0 ]] || fail 3 "missing Debian packages: $*; run again with --yes, or install them with: sudo apt-get install $*"
  local answer
  read -r -p "Install these Debian packages with sudo apt-get: $*? [y/N] " answer
  [[ $answer == [yY]* ]] || fail 3 "missing Debian packages: $*"
}

# ensure_packages PACKAGE[:COMMAND]...: installs those that are missing; does nothing when none is.
ensure_packages() {
  local missing=() entry
  for entry in "$@"; do
    package_present "$entry" || missing+=("${entry%%:*}")
  done
  if [[ ${#missing[@]} -eq 0 ]]; then
    say "nothing is missing"
    return
  fi
  command -v apt-get >/dev/null ||
    fail 3 "this is not Debian (no apt-get); please install what these Debian packages hold: ${missing[*]}"
  $offline && fail 3 "missing Debian packages, and --offline was given: ${missing[*]}"
  confirm_install "${missing[@]}"

  local as_root=()
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null || fail 3 "neither root nor sudo; as root, run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  # A repository that does not answer need not be one that is needed: the installation below decides.
  "${as_root[@]}" apt-get update -qq -o Acquire::Retries=3 ||
    say "apt-get update reported errors; going on with the package lists that are there"
  local unknown=() package
  for package in "${missing[@]}"; do
    apt-cache show "$package" >/dev/null 2>&1 || unknown+=("$package")
  done
  [[ ${#unknown[@]} -eq 0 ]] ||
    fail 3 "this system's package lists do not have: ${unknown[*]} (cfc is built on Debian 12, with its LLVM 22 packages)"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "${missing[@]}" >/dev/null ||
    fail 4 "apt-get could not install: ${missing[*]}"
}

# --- CUDA's programs -------------------------------------------------------------------------------------------

# ptxas_usable PATH: it runs, and is of CUDA 12 or later: the first to assemble for sm_90a.
ptxas_usable() {
  local major
  [[ -x $1 ]] || return 1
  major=$("$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  [[ -n $major && $major -ge 12 ]]
}

# Prints the ptxas to use, looked for where cfc itself looks: $CFC_PTXAS, the build folder, PATH, the toolkit.
find_ptxas() {
  local candidate
  for candidate in "${CFC_PTXAS:-}" "$build/cuda/bin/ptxas" "$(command -v ptxas || true)" \
    /usr/local/cuda/bin/ptxas; do
    if [[ -n $candidate ]] && ptxas_usable "$candidate"; then
      say "$candidate"
      return
    fi
  done
  return 1
}

# Makes sure that a ptxas is there: from the wheels, unpacked in build/cuda, when no toolkit is found.
ensure_cuda() {
  local found
  if found=$(find_ptxas); then
    say "found $found"
    return
  fi
  $offline && fail 3 "no ptxas of CUDA 12 or later is found, and --offline was given: install a CUDA toolkit or set CFC_PTXAS"
  python3 -m pip --version >/dev/null 2>&1 || ensure_packages python3-pip
  local wheel specs=()
  for wheel in "${cuda_wheels[@]}"; do specs+=("$wheel==$cuda_version"); done
  say "fetching ${specs[*]}"
  local fresh="$build/cuda.new"
  rm -rf -- "$fresh" "$build/cuda"
  mkdir -p -- "$fresh"
  # Without their dependencies: those are unpinned, and only nvcc itself needs them.
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --root-user-action=ignore \
    --target "$fresh" "${specs[@]}" || fail 4 "pip could not fetch CUDA's wheels from the Python index"
  # The wheels put everything in nvidia/cu13; the links give it a toolkit's usual shape.
  local folder
  for folder in bin include lib; do ln -s "nvidia/cu13/$folder" "$fresh/$folder"; done
  chmod +x "$fresh"/nvidia/cu13/bin/*
  mv -- "$fresh" "$build/cuda" # only now, so that a broken download is not taken for a toolkit
  found=$(find_ptxas) || fail 4 "the ptxas of CUDA's wheels does not run here: $build/cuda/bin/ptxas"
  say "found $found"
}

# --- building --------------------------------------------------------------------------------------------------

configure() {
  local log="$build/configure.log"
  mkdir -p -- "$build"
  (cd -- "$root" && cmake --preset default) >"$log" 2>&1 || {
    cat -- "$log" >&2
    fail 4 "CMake could not configure (the whole log is $log)"
  }
  say "configured $build"
}

# One job for each core, but no more than memory allows: a file that uses MLIR takes up to 1.5 GB.
jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  local by_memory=$((memory_gb * 2 / 3))
  [[ $by_memory -ge 1 ]] || by_memory=1
  say $((cores < by_memory ? cores : by_memory))
}

# build_targets TARGET...: without a target, everything.
build_targets() {
  local quiet=()
  [[ -t 1 ]] || quiet=(--quiet)
  ninja -C "$build" -j "$(jobs)" "${quiet[@]}" "$@" || fail 4 "the build failed; the compiler's messages are above"
}
