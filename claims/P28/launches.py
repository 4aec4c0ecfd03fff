#!/usr/bin/env python3
"""Decoding alone, with captured graphs and without, on four devices.

    launches.py KVIST DEVICES     one JSON object per device
"""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import emulated

WEIGHTS = 7.6e9 * 2  # Bytes of Qwen 2.5 7B in bf16.


def main():
    with tempfile.TemporaryDirectory() as folder:
        lab = emulated.Lab(*sys.argv[1:], folder)
        for name in ("h100", "a100", "l40s", "l4"):
            ms = {}
            for how, device in (("graphs", name), ("launched", lab.variant(name, "eager_above_tokens", 0.5))):
                ms[how] = lab.replay(device, "qwen2.5-7b", [(0, 2048, 129)])["tpot_ms"]["mean"]
            floor_ms = 1e3 * WEIGHTS / (1e9 * lab.device(name)["memory"][0]["bandwidth_gb_s"])
            print(json.dumps({"device": name, "ms": ms["graphs"], "launched_ms": ms["launched"], "gain": ms["launched"] / ms["graphs"], "share_of_floor": floor_ms / ms["launched"]}))


if __name__ == "__main__":
    main()
