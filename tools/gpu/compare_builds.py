#!/usr/bin/env python3
"""Compares the speed of two builds of cfc on this GPU, so that no regression goes unnoticed.

    tools/gpu/compare_builds.py OLD NEW GRAPH|BUNDLE… [option]…

OLD and NEW are cfc programs; a graph is compiled by each, a bundle runs as it is. Both run `cfc bench --json` in turn,
each first in every other round, so that a GPU that slows down slows down both. The ratio of a case is that of the
medians over all rounds: above 1 NEW is slower. Options that this program does not know go to `cfc bench`.

Exit codes: 0 NEW is nowhere slower than the limit; 1 it is; 2 bad usage; 3 or 4 as `cfc bench` ended.
Example: tools/gpu/compare_builds.py /tmp/before/cfc build/bin/cfc templates/graphs/llama2_7b_attention.mlir --len=1024,4096
"""
import argparse
import json
import os
import statistics
import subprocess
import sys


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD", help="a cfc program")
    parser.add_argument("new", metavar="NEW", help="the one that must not be slower")
    parser.add_argument("sources", metavar="GRAPH|BUNDLE", nargs="+", help="what is timed")
    parser.add_argument("--rounds", type=int, default=3, help="times that each runs (3)")
    parser.add_argument("--limit", type=float, default=2, help="percent that NEW may be slower (2)")
    options, rest = parser.parse_known_args()
    wrong = [word for word in rest if not word.startswith("-")]
    if wrong:
        parser.error(f"write options of cfc bench as --NAME=VALUE, not apart: {' '.join(wrong)}")
    if options.rounds < 1 or options.limit < 0:
        parser.error("--rounds is at least 1, --limit at least 0")
    for path in (options.old, options.new):
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            parser.error(f"{path} is no program")
    for path in options.sources:
        if not os.path.exists(path):
            parser.error(f"there is no file {path}")
    return options, rest


def bench(program, source, rest):
    """(case, microseconds) by name of one run."""
    done = subprocess.run([program, "bench", source, "--json", *rest], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"error: {program} bench {source} ended with {done.returncode}", file=sys.stderr)
        sys.exit(done.returncode if 1 < done.returncode <= 4 else 4)
    return {case.get("length"): case["block_us"]["median"] for case in json.loads(done.stdout)["cases"]}


def compare(source, options, rest):
    """(length, old, new) of each case: medians over the rounds."""
    times = {options.old: [], options.new: []}
    for number in range(options.rounds):
        for program in [options.old, options.new][:: 1 if number % 2 == 0 else -1]:
            times[program].append(bench(program, source, rest))
    middle = lambda program, length: statistics.median(run[length] for run in times[program])  # noqa: E731
    lengths = [length for length in times[options.old][0] if length in times[options.new][0]]
    return [(length, middle(options.old, length), middle(options.new, length)) for length in lengths]


def main():
    options, rest = parse()
    if os.path.samefile(options.old, options.new):
        print("note: OLD and NEW are the same program: the ratios show the noise", file=sys.stderr)
    slower = 0
    print(f"{'':40s} {'length':>7s} {'old us':>9s} {'new us':>9s} {'new/old':>8s}")
    for source in options.sources:
        for length, old, new in compare(source, options, rest):
            bad = new > old * (1 + options.limit / 100)
            slower += bad
            name = os.path.basename(source)
            shown = "-" if length is None else length
            print(f"{name:40s} {shown:>7} {old:9.2f} {new:9.2f} {new / old:8.3f}{'  SLOWER' if bad else ''}", flush=True)
    print(f"{slower} slower by more than {options.limit:g} %" if slower else f"none slower by more than {options.limit:g} %")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
