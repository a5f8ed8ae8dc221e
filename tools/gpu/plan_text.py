"""Plans made from the text of others.

    python3 tools/gpu/plan_text.py --cfc build/bin/cfc GRAPH.mlir...

says how the kernels of each graph start with each value of pdl, in the planner's choice and in a plan of separate
kernels, or why they cannot. Exit code 1 where a value is possible in no plan of a graph.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# How kernels start: behind the one before; early, with weights; attention early with cached tokens too; as CTAs end.
PDL_VALUES = (0, 1, 2, 3)


def operations(text):
    """(label, kernel or None) of each operation of a plan."""
    found = re.findall(r"^op (.*\)):(?:.*?kernel = (\d+))?", text, flags=re.M)
    return [(label, int(kernel) if kernel else None) for label, kernel in found]


def launches(text):
    """The kernels of a full plan, by launch: joined ones share that of the kernel before."""
    result = []
    for number, rest in re.findall(r"^kernel (\d+):(.*)$", text, flags=re.M):
        if result and re.search(r"\bjoined = 1\b", rest):
            result[-1].append(int(number))
        else:
            result.append([int(number)])
    return result


def pdl_of(text):
    """The kernels' pdl, in order."""
    return [int(value) for value in re.findall(r"^kernel .*\bpdl = (\d)", text, flags=re.M)]


def plan_with_pdl(text, value):
    """The full plan with that `pdl` in every kernel; 2, which takes another launch before it, in those behind the first
    and 1 there. None where 2 would take no cached tokens early, for no attention is behind another launch."""
    behind = {kernel for launch in launches(text)[1:] for kernel in launch}
    if value == 2 and not any(kernel in behind for label, kernel in operations(text) if label.startswith("attention(")):
        return None

    def start(kernel):
        return value if value != 2 or kernel in behind else 1

    # What a kernel can hold depends on how it starts: the planner says it anew.
    text = re.sub(r"^(kernel .*), held = \d+", r"\1", text, flags=re.M)
    text = re.sub(r"^(kernel .*), pdl = [0-3]", r"\1", text, flags=re.M)
    return re.sub(r"^kernel ([0-9]+):.*$", lambda m: f"{m[0]}, pdl = {start(int(m[1]))}", text, flags=re.M)


def plan_of_kernels(text, kernel_of, lines):
    """A plan with these lines for its kernels, where `kernel_of` says which has an operation, by its place and label."""
    ops = [f"op {label}: kernel = {kernel_of(i, label)}" for i, (label, _) in enumerate(operations(text))]
    return "\n".join([text.splitlines()[0], *lines, *ops]) + "\n"


def plan_joined(text):
    """A plan whose last linear, and what follows it, waits for all CTAs in the same launch. The planner chooses the rest."""
    last = max(i for i, (label, _) in enumerate(operations(text)) if label.startswith("linear("))
    return plan_of_kernels(text, lambda i, _: int(i >= last), ["kernel 0: pdl = 1", "kernel 1: joined = 1"])


def plan_separate(text):
    """A plan whose attention is in a launch between those of the linears before and behind it. The planner chooses the
    rest."""
    labels = [label for label, _ in operations(text)]
    linears = [i for i, label in enumerate(labels) if label.startswith("linear(")]
    at = next(i for i, label in enumerate(labels) if label.startswith("attention("))
    first, last = max(i for i in linears if i < at), min((i for i in linears if i > at), default=len(labels))
    lines = [f"kernel {kernel}: joined = 0" for kernel in range(1, 2 + (last < len(labels)))]
    return plan_of_kernels(text, lambda i, _: int(i > first) + int(i >= last), lines)


def plan_with(text, part):
    """A plan that fixes the size of the CTA axis of one kernel and leaves the rest to the planner."""
    return plan_of_kernels(text, lambda *_: 0, [f"kernel 0: part = {part}"])


class Refused(Exception):
    """A plan that cfc does not take, or whose text has no place for a value."""


def complete(cfc, graph, plan):
    """The full plan of a graph for `--plan=`: auto, random:SEED or a file."""
    command = [cfc, "compile", str(graph), f"--plan={plan}", "--emit=plan", "-o", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode in (2, 3):  # what cfc says of a plan that it does not take
        raise Refused(done.stderr.strip().splitlines()[0])
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def write_pdl_plan(cfc, graph, text, value, path):
    """Writes the full plan `text` with that `pdl` to a file; returns it as cfc completes it. Raises Refused."""
    wanted = plan_with_pdl(text, value)
    if wanted is None:
        raise Refused("no attention is behind another launch")
    path.write_text(wanted)
    found = complete(cfc, graph, path)
    if pdl_of(found) != pdl_of(wanted):
        raise RuntimeError(f"{path}: cfc made pdl = {pdl_of(found)} of {pdl_of(wanted)}")
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cfc", default="build/bin/cfc", help="the cfc program (build/bin/cfc)")
    arguments.add_argument("graphs", nargs="+")
    options, failed = arguments.parse_args(), False
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "given.plan"
        for graph in options.graphs:
            name, possible = pathlib.Path(graph).stem, set()
            chosen = complete(options.cfc, graph, "auto")
            path.write_text(plan_separate(chosen))
            for kind, text in (("chosen", chosen), ("separate", complete(options.cfc, graph, path))):
                for value in PDL_VALUES:
                    try:
                        starts = pdl_of(write_pdl_plan(options.cfc, graph, text, value, path))
                        possible.add(value)
                        print(f"{name} {kind}, pdl {value}: kernels start with {starts}")
                    except Refused as why:
                        print(f"{name} {kind}, pdl {value}: skipped: {why}")
            for value in sorted(set(PDL_VALUES) - possible):
                failed = True
                print(f"{name}: FAILED: pdl {value} is possible in neither plan")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
