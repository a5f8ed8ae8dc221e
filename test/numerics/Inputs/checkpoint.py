"""Runs cfc on a checkpoint that transformers saved and compares with the answers that transformers gave.

    checkpoint.py CHECKPOINT TOLERANCE SCRATCH [DEVICE]

CHECKPOINT.mlir is the graph, CHECKPOINT/ the model and cases.safetensors. Compared are the block's result, the
same without the residual, and the rows appended to the cache; the cache's other rows must be as they were.
"""
import pathlib
import subprocess
import sys

from tensor_files import read_results, read_safetensors, relative_l2

LENGTHS = (0, 1, 17, 64, 130)


def run_case(checkpoint, length, output, device):
    """Runs the graph with a cache of `length` tokens; returns its outputs by name."""
    file = checkpoint / "cases.safetensors"
    command = ["cfc", "run", f"{checkpoint}.mlir", f"--device={device}", "--weights", checkpoint, "--output", output]
    inputs = {name: f"len{length}.{name}" for name in ("x", "pos", "slot", "len")}
    inputs |= {"cache.k": "cache.k", "cache.v": "cache.v"}
    if "%table:" in pathlib.Path(f"{checkpoint}.mlir").read_text():
        inputs["table"] = "table"
    for name, key in inputs.items():
        command += ["--input", f"{name}={file}:{key}"]
    code = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    if code:
        sys.exit(f"cfc run ended with {code}")
    return read_results(output)


def split_rows(cache, slot):
    """The row of token `slot` of each head, and all other elements, of a cache [heads, tokens, dim]."""
    (heads, tokens, dim), data = cache
    row, others = [], []
    for head in range(heads):
        begin = (head * tokens + slot) * dim
        row += data[begin : begin + dim]
        others += data[head * tokens * dim : begin] + data[begin + dim : (head + 1) * tokens * dim]
    return row, others


def check_case(cases, results, length, tolerance):
    """Prints the case's errors; returns whether all are in bounds."""
    x, y = cases["%s.x" % length][1], cases["%s.y" % length][1]
    errors = {
        "result": relative_l2(results["result0"][1], y),
        "without residual": relative_l2(results["result1"][1], [b - a for a, b in zip(x, y)]),
    }
    unchanged = True
    for part in ("k", "v"):
        slot = cases["%s.slot" % length][1][0]
        row, others = split_rows(results["cache." + part], slot)
        errors["appended " + part] = relative_l2(row, cases[f"{length}.{part}"][1])
        unchanged &= others == split_rows(cases["cache." + part], slot)[1]
    good = unchanged and all(error <= tolerance for error in errors.values())
    print(length, "ok" if good else "WRONG", *(f"{name} {error:.2e}" for name, error in errors.items()), sep="  ")
    if not unchanged:
        print("  other rows of the cache changed")
    return good


def main():
    checkpoint, tolerance, scratch = pathlib.Path(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3])
    device = sys.argv[4] if len(sys.argv) > 4 else "emu"
    cases = read_safetensors(checkpoint / "cases.safetensors")
    good = True
    for length in LENGTHS:
        output = scratch / str(length)
        output.mkdir(parents=True, exist_ok=True)
        results = run_case(checkpoint, length, output, device)
        good &= check_case(cases, results, f"len{length}", tolerance)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
