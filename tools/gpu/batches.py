#!/usr/bin/env python3
"""Prints the table of `tools/gpu/batches.sh` from the results of its cases.

    batches.py FOLDER [--results=FILE]

FOLDER holds NAME.json, what `cfc bench --json` printed, for each case that has a result. --results writes all of them
into one file. All times are microseconds a block; "of floor" is cfc's time over the floor. What is required is a limit
on that ratio, or for pages on the ratio to the same lengths in rows of their own. "met" also asks that cfc is ahead of
each peer in the table. Peers of pages attend over contiguous rows where the mark ~ stands.
"""
import argparse
import json
import pathlib

# (case, title, limit on the ratio to the floor by length, limit on the ratio to contiguous rows)
CASES = (
    ("b1", "Llama 3 8B, 1 request of {}", {"1024": 1.3, "8192": 1.2, "32768": 1.12}, None),
    ("b8", "8 requests of {}", {"1024": 1.3, "8192": 1.15}, None),
    ("b32", "32 requests, {}", {"ragged": 1.3}, None),
    ("page64h", "  pages of 64 [head, token, dim]", {}, 1.05),
    ("page64t", "  pages of 64 [token, head, dim]", {}, 1.15),
    ("page16h", "  pages of 16 [head, token, dim]", {}, 1.10),
    ("page16t", "  pages of 16 [token, head, dim]", {}, 1.15),
    ("fp8", "  pages of 64, f8E4M3FN", {}, None),
    ("rank", "Llama 3 70B, a rank of 8, 1 request of {}", {"8192": 1.35}, None),
)
HEADER = "work,MB,floor,stream,cfc,of floor,of rows,required,torch.compile,FlashInfer,met".split(",")


def read_results(folder):
    results = {}
    for path in sorted(folder.glob("*.json")):
        try:
            results[path.stem] = json.loads(path.read_text())
        except ValueError as error:
            print(f"{path.stem}: no result: {error}")
    return results


def peer_times(case):
    """(torch.compile's, FlashInfer's) microseconds, and texts that say more."""
    times, notes = {}, []
    for peer in case.get("baselines") or []:
        kind = next((kind for kind in ("torch.compile", "FlashInfer") if peer["name"].startswith(kind)), None)
        if kind and "us" in peer:
            times[kind] = peer["us"]["median"]
            if peer["name"] != kind:
                notes.append(peer["name"])
        elif kind:
            notes.append(f"{peer['name']} not timed: {peer['problem']}")
    return (times.get("torch.compile"), times.get("FlashInfer")), notes


def show(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def row_of(title, case, limit, limit_of_rows, rows):
    """One line of the table, and notes; `rows` is the case of contiguous rows, or None."""
    us, floor = case["block_us"]["median"], case["floor_us"]
    peers, notes = peer_times(case)
    shown = [show(peer) for peer in peers]
    of_rows = None
    if limit_of_rows:
        if rows:
            of_rows = us / rows["block_us"]["median"]
            theirs = peer_times(rows)[0]
            shown = [show(own) if own else "~" + show(other) if other else "-" for own, other in zip(peers, theirs)]
            peers = [own or other for own, other in zip(peers, theirs)]
        required, ratio, most = f"{limit_of_rows:.2f} of rows", of_rows, limit_of_rows
    else:
        required, ratio, most = show(limit, 2), us / floor, limit
    met = "-"
    if ratio and most:
        met = "yes" if ratio <= most and all(us < peer for peer in peers if peer) else "NO"
    line = (
        title.format(case.get("len", "")),
        show(case["bytes"]["total"] / 1e6),
        show(floor),
        show(case["stream_us"]["median"]),
        show(us),
        show(us / floor, 3),
        show(of_rows, 3),
        required,
        *shown,
        met,
    )
    return line, [f"{line[0].strip()}: {note}" for note in notes]


def table(results):
    lines, notes = [HEADER], []
    contiguous = results.get("b32", {}).get("cases", [None])[0]
    for name, title, limits, limit_of_rows in CASES:
        for case in results.get(name, {}).get("cases", []):
            limit = limits.get(case.get("len", "").split(":")[0])
            same = contiguous if contiguous and contiguous.get("lengths") == case.get("lengths") else None
            line, more = row_of(title, case, limit, limit_of_rows, same)
            lines.append(line)
            notes += more
    return lines, notes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path)
    options = parser.parse_args()
    results = read_results(options.folder)
    if options.results:
        options.results.write_text(json.dumps(results, indent=1) + "\n")
    lines, notes = table(results)
    for device in [result["device"] for result in results.values()][:1]:
        bandwidth = device["stream_bytes_per_second"] / 1e12
        print(f"{device['name']}, driver {device['driver']}; one pass reads {bandwidth:.3f} TB/s; us a block")
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    for line in lines:
        cells = [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]
        print("  ".join(cells).rstrip())
    for note in dict.fromkeys(notes):
        print(note)


if __name__ == "__main__":
    main()
