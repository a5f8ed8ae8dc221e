"""Turns a machine's description on standard input into that of a part of it: 60 SMs, 12 clusters of 4."""
import json
import sys

machine = json.load(sys.stdin)
machine.update(name="slice", sms=60)
machine["resident_clusters"] = {
    ctas: {size: 48 * int(ctas) // int(size) for size in sizes} for ctas, sizes in machine["resident_clusters"].items()
}
json.dump(machine, sys.stdout)
