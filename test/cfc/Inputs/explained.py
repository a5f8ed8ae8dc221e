"""Checks what cfc explain --format=json says about the 7B block for a short and a long cache."""
import json
import sys


def check(explained):
    assert explained["us"] > explained["floor_us"] > 0, explained
    us = 0
    for kernel in explained["kernels"]:
        now = 0
        for phase in kernel["phases"]:
            assert abs(phase["start_us"] - now) < 1e-3, phase
            now += phase["us"]
            if phase["kind"] != "stream":
                continue
            assert phase["limit"] in phase["limits_us"] and phase["load_start_us"] <= phase["start_us"], phase
            assert phase["limits_us"][phase["limit"]] == max(phase["limits_us"].values()), phase
        kinds = [phase["kind"] for phase in kernel["phases"]]
        assert kinds[:2] == ["launch", "norm"] and kinds.count("stream") == 3 and kinds[-1] == "sum", kinds
        assert kinds.count("exchange") == (2 if kernel["part"] > 1 else 0), kinds
        assert abs(now - kernel["us"]) < 1e-2, (now, kernel["us"])
        us += kernel["us"]
    assert abs(us - explained["us"]) < 1e-3
    weights, token = 4 * 4096 * 4096 * 2, 32 * 128 * 4
    assert explained["bytes"] == weights + token * explained["length"], explained["bytes"]


short, long = (json.load(open(path)) for path in sys.argv[1:])
check(short)
check(long)
assert short["length"] == 4096 and long["length"] == 16384
assert long["us"] - short["us"] > 0.9 * (long["floor_us"] - short["floor_us"])
