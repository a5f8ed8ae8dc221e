"""Checks that profiling adds 32 marks of 8 bytes a CTA behind a workspace, and nothing else.

    workspace_of_marks.py PLAIN_MANIFEST.json PROFILED_MANIFEST.json PROFILED_SIMT.mlir
"""
import json
import re
import sys

plain, profiled = (json.load(open(name))["graphs"][0] for name in sys.argv[1:3])
places = [int(place) for place in re.findall(r"cfc.profile = (\d+)", open(sys.argv[3]).read())]
kernels = profiled["variants"][0]["kernels"]
assert places and len(places) == len(kernels), (places, kernels)
at = (plain["workspace"]["bytes"] + 255) // 256 * 256
for place, kernel in zip(places, kernels):
    assert place == at, (place, at)
    at += 32 * 8 * kernel["cluster"] * kernel["clusters"]
assert profiled["workspace"]["bytes"] == at, (profiled["workspace"], at)
assert profiled["workspace"]["zero_bytes"] == plain["workspace"]["zero_bytes"]
