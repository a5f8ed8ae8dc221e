"""Runs a kernel file with `cfc run` and compares its outputs."""
import os
import shutil
import subprocess

from arrays import largest_difference, read_npy, write_npy


def write_arrays(folder, arrays):
    os.makedirs(folder, exist_ok=True)
    for name, array in arrays.items():
        write_npy(os.path.join(folder, name + ".npy"), array)


def compare(folder, outputs):
    """Compares the files in `folder` with `outputs`: name -> (array, tolerance). Gives lines of text and the verdict.

    A tolerance of 0 asks for the same values; any other is the largest difference allowed, in units of the expected
    array's root of mean square.
    """
    lines, good = [], True
    for name, ((kind, shape, want), tolerance) in outputs.items():
        found = read_npy(os.path.join(folder, name + ".npy"))  # numpy has no bf16: cfc writes f32
        assert found[:2] in ((kind, tuple(shape)), ("f32", tuple(shape))), f"{name} is {found[:2]}, not {(kind, shape)}"
        worst = largest_difference(found[2], want)
        fits = worst <= tolerance
        good &= fits
        lines.append(f"  {name}: largest difference {worst:.2g} (limit {tolerance:g}) {'ok' if fits else 'MISMATCH'}")
    return lines, good


def run(source, folder, inputs, outputs, seed, options=(), device="emu"):
    """One run of `source` in `folder`. Gives the text of what is wrong, or None."""
    shutil.rmtree(folder, ignore_errors=True)
    write_arrays(os.path.join(folder, "in"), inputs)
    command = ["cfc", "run", source, f"--device={device}", *options]
    if device == "emu":
        command.append(f"--seed={seed}")
    command += ["--output", os.path.join(folder, "out")]
    for name in inputs:
        command += ["--input", f"{name}={os.path.join(folder, 'in', name + '.npy')}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200)
    if done.returncode:
        return f"exit {done.returncode}\n{done.stdout}"
    lines, good = compare(os.path.join(folder, "out"), outputs)
    return None if good else "\n".join(lines)
