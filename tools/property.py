#!/usr/bin/env python3
"""Random attention graphs with random legal plans, each run on the emulator against the float64 reference.

    tools/property.py --cases=200 --seed=1     # what CI runs: seeds 1 to 200
    tools/property.py --seed=17                # one case, once more
    tools/property.py nightly                  # 5000 cases, others every day

A case is drawn from its seed alone: the graph, the plan (`--plan=random:SEED`), the lengths and slots of its requests
(some idle), pages (some shared) and the emulator's order of threads. What the compiler says it cannot do (exit code 3) counts as refused,
is listed by reason, and must stay below a share. A case that fails is made smaller while it still fails: operations,
options, requests, lengths and sizes are dropped one by one, and the plan becomes the planner's own. What is left is printed
with the command that repeats it, and lies in WORK/seedN. `--mutate` edits the kernels that the compiler writes before they
run, to see that wrong kernels are found.

Exit codes: 0 all is right; 1 a case failed, or too many were refused; 2 bad usage.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from property_cases import Case, draw, shrink_steps, write_inputs

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT = 120  # seconds of one run: the emulator itself ends a launch that hangs
SHRINK_RUNS, SHRINK_SECONDS = 200, 120
NIGHTLY = 5000


@dataclasses.dataclass
class Outcome:
    """What one run of cfc said. `kind` tells failures apart: a smaller case must fail in the same way."""

    status: str  # "passed", "refused" or "failed"
    kind: str = ""
    text: str = ""
    command: str = ""
    seconds: float = 0


def general(message):
    """A message without what is one graph's own: place, names and numbers."""
    message = re.sub(r"^\S+?:\d+:\d+: ", "", message)
    message = re.sub(r"%[\w#]+|\(%?\w+\)|'[^']*'", "_", message)
    return re.sub(r"\d+(\.\d+)?(e[-+]\d+)?", "N", message)


def first_error(text):
    for line in text.splitlines():
        if found := re.search(r"(error: .*)", line):
            return found[1].removeprefix("error: ")
    return text.strip().splitlines()[-1] if text.strip() else "no message"


class Runner:
    def __init__(self, options):
        self.cfc, self.mutate = options.cfc, options.mutate
        self.environment = {**os.environ, "LC_ALL": "C.UTF-8"}

    def call(self, *arguments):
        """(exit code, output, messages); a run that takes too long has the code 124."""
        try:
            done = subprocess.run([self.cfc, *map(str, arguments)], capture_output=True, text=True, errors="replace",
                                  timeout=LIMIT, env=self.environment)  # fmt: skip
            return done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            return 124, "", f"error: no end after {LIMIT} s"

    def run(self, case, folder):
        """Writes the case's files into `folder` and verifies it."""
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        arguments = ["verify", *write_inputs(case, folder)]
        if self.mutate:
            changed = self.changed_kernels(case, folder)
            if isinstance(changed, Outcome):
                return changed
            arguments = [a for a in arguments if a not in case.build_options()] + [f"--kernels={changed}"]
        code, text, messages = self.call(*arguments)
        command = shlex.join(["cfc", *map(str, arguments)])
        return dataclasses.replace(self.judge(code, text + messages), command=command, seconds=time.monotonic() - started)

    def changed_kernels(self, case, folder):
        """The file of edited kernels; an Outcome where there are none, or nothing to edit."""
        graph, path = folder / "graph.mlir", folder / "kernels.mlir"
        code, text, messages = self.call("compile", graph, "--emit=kernel", *case.build_options())
        if code:
            return self.judge(code, messages)
        pattern, _, replacement = self.mutate.partition("=>")
        changed = re.sub(pattern, replacement, text)
        if changed == text:
            return Outcome("passed")
        path.write_text(changed)
        return path

    def judge(self, code, text):
        if code == 0:
            return Outcome("passed", text=text)
        if code == 3:
            return Outcome("refused", general(first_error(text)), text)
        found = general(first_error(text)) if "error: " in text else "a value is wrong"
        return Outcome("failed", f"exit {code}: {found}", text)


def shrink(runner, case, outcome, folder):
    """The smallest case found that fails like `case`, and what it says. Goes through all steps until none helps."""
    started, runs, best, said = time.monotonic(), 0, case, outcome
    tried, helped = {case}, True
    while helped:
        helped, at = False, 0
        while at < len(steps := shrink_steps(best)):
            smaller, at = steps[at], at + 1
            if smaller in tried:
                continue
            if runs >= SHRINK_RUNS or time.monotonic() - started > SHRINK_SECONDS:
                return best, said
            tried.add(smaller)
            runs += 1
            result = runner.run(smaller, folder)
            if result.status == "failed" and result.kind == outcome.kind:
                best, said, helped, at = smaller, result, True, at - 1  # the step is gone, or can be taken again
    return best, said


def report(options, runner, seed, case, outcome, work):
    """Prints a failure: how to repeat it, and the smallest graph that shows it."""
    repeat = f"tools/property.py --seed={seed}" + "".join(f" --set={name}={value}" for name, value in options.set)
    if options.mutate:
        repeat += f" --mutate={shlex.quote(options.mutate)}"
    print(f"FAILED: {repeat}\n  {outcome.kind}", flush=True)
    folder = work / f"seed{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    if options.shrink:
        case, outcome = shrink(runner, case, outcome, folder)
    outcome = runner.run(case, folder)  # once more, so that the folder holds its files
    lines = outcome.text.strip().splitlines()
    wrong = [line for line in lines if "MISMATCH" in line or "worst at" in line or "error: " in line]
    print(f"  {'shrunk' if options.shrink else 'not shrunk'}: {case.describe()}\n  {outcome.command}")
    print("".join(f"  | {line}\n" for line in (folder / "graph.mlir").read_text().splitlines()), end="")
    print("".join(f"  > {line.strip()[:300]}\n" for line in (wrong or lines)[:8]), end="", flush=True)


def run_cases(options):
    runner, work = Runner(options), pathlib.Path(options.work)
    counts, refusals, features, times = collections.Counter(), collections.Counter(), collections.Counter(), []
    started, failures = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="cfc-property-") as scratch:

        def one(seed):
            folder = pathlib.Path(scratch) / str(seed)
            case = draw(seed, options.set)
            outcome = runner.run(case, folder)
            shutil.rmtree(folder, ignore_errors=True)
            return seed, case, outcome

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for seed, case, outcome in pool.map(one, range(options.seed, options.seed + options.cases)):
                counts[outcome.status] += 1
                times.append((outcome.seconds, seed))
                if outcome.status == "passed":
                    features.update(case.features())
                elif outcome.status == "refused":
                    refusals[outcome.kind] += 1
                else:
                    failures.append((seed, case, outcome))
                    print(f"seed {seed}: {outcome.kind}", flush=True)
                if options.verbose:
                    print(f"{seed}: {outcome.status} in {outcome.seconds:.1f} s: {case.describe()}", flush=True)
    for seed, case, outcome in failures[: options.report]:
        report(options, runner, seed, case, outcome, work)
    if len(failures) > options.report:
        print("not shrunk: " + ", ".join(f"--seed={seed}" for seed, _, _ in failures[options.report :]))
    return summarize(options, counts, refusals, features, times, time.monotonic() - started)


def summarize(options, counts, refusals, features, times, seconds):
    for reason, count in refusals.most_common():
        print(f"refused {count:4d}: {reason}")
    if options.cases > 1:
        print("passed with: " + ", ".join(f"{name} {count}" for name, count in sorted(features.items())))
        slowest = ", ".join(f"seed {seed} {spent:.1f} s" for spent, seed in sorted(times, reverse=True)[:3])
        print(f"slowest: {slowest}")
    share = 100 * counts["refused"] / options.cases
    print(f"{options.cases} cases in {seconds:.0f} s: {counts['passed']} passed, {counts['refused']} refused, "
          f"{counts['failed']} failed")  # fmt: skip
    if options.cases >= 50 and share > options.most_refused:
        print(f"FAILED: {share:.0f} % were refused; {options.most_refused} % are the limit")
        return 1
    return 1 if counts["failed"] else 0


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("nightly",), help=f"{NIGHTLY} cases of today")
    parser.add_argument("--cases", type=int, help="how many, one seed after the other (1)")
    parser.add_argument("--seed", type=int, help="the first case's (1)")
    parser.add_argument("--cfc", default=str(ROOT / "build/bin/cfc"), help="the program (build/bin/cfc)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cases at a time (all cores)")
    parser.add_argument("--work", default=str(ROOT / "build/property"), help="where shrunk cases are left (build/property)")
    parser.add_argument("--report", type=int, default=5, help="failures that are shrunk and printed (5)")
    parser.add_argument("--most-refused", type=float, default=20, help="per cent of 50 cases or more (20)")
    parser.add_argument("--mutate", metavar="REGEX=>TEXT", help="edit the kernels before they run")
    parser.add_argument("--set", metavar="FIELD=TEXT", action="append", default=[], help="of all cases: --set=cache=f8E4M3FN")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false", help="print failures as they are")
    parser.add_argument("--show", action="store_true", help="print the case's graph and command, and run nothing")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each case")
    options = parser.parse_args(arguments)
    nightly = options.what == "nightly"
    options.cases = options.cases if options.cases is not None else NIGHTLY if nightly else 1
    today = int(time.time() // 86400) * NIGHTLY
    options.seed = options.seed if options.seed is not None else today if nightly else 1
    if options.cases < 1 or options.jobs < 1 or options.seed < 0 or options.report < 0:
        parser.error("--cases and --jobs are at least 1, --seed and --report at least 0")
    options.set = [tuple(one.partition("=")[::2]) for one in options.set]
    for name, _ in options.set:
        if Case.__dataclass_fields__.get(name) is None or Case.__dataclass_fields__[name].type is not str:
            parser.error(f"--set={name}: a case has no text of that name")
    if options.mutate:
        try:
            re.compile(options.mutate.partition("=>")[0])
        except re.error as error:
            parser.error(f"--mutate: {error}")
        if "=>" not in options.mutate:
            parser.error("--mutate is REGEX=>TEXT")
    if not options.show and not os.access(options.cfc, os.X_OK):
        parser.error(f"there is no program {options.cfc}; build it, or name it by --cfc")
    return options


def main(arguments):
    options = parse(arguments)
    if not options.show:
        return run_cases(options)
    for seed in range(options.seed, options.seed + options.cases):
        case = draw(seed, options.set)
        print(f"// seed {seed}: {case.describe()}\n{case.graph()}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
