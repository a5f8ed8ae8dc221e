"""Checks that an explained plan (standard input) is legal on a machine: MACHINE.json and its usable SMs."""
import json
import sys

machine, sms, explained = json.load(open(sys.argv[1])), int(sys.argv[2]), json.load(sys.stdin)
assert explained["sms"] == sms, explained["sms"]
for kernel in explained["kernels"]:
    part, ctas = kernel["part"], kernel["ctas_per_sm"]
    resident = machine["resident_clusters"][str(ctas)][str(part)]
    if sms < machine["sms"]:
        resident = min(resident, sms // part)
    assert 1 <= kernel["clusters"] <= min(resident, kernel["items"]), (kernel["clusters"], resident)
    limit = min(machine["shared_bytes"], machine["shared_bytes_per_sm"] // ctas - machine["shared_reserved"])
    assert kernel["shared_bytes"] <= limit, (kernel["shared_bytes"], limit)
    assert kernel["rounds"] == -(-kernel["items"] // kernel["clusters"]), kernel["rounds"]
