#!/usr/bin/env python3
"""Throughput of the device with two processors and of its first processor alone, on the same closed loop.

    compare.py KVIST DEVICES TRACE     one JSON object per device
"""
import json
import pathlib
import subprocess
import sys
import tempfile


def without_last_processor(text):
    begin = text.rindex("[[processor]]")
    return text[:begin] + text[text.index("[step]", begin):]


def main():
    kvist, devices, trace = sys.argv[1:]
    whole = (pathlib.Path(devices) / "duplex.toml").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("both", whole), ("xpu", without_last_processor(whole))):
            path = pathlib.Path(folder) / f"{name}.toml"
            path.write_text(text, encoding="utf-8")
            done = subprocess.run([kvist, "replay", "--json", "--device", path, "--devices", devices, "--model", "mixtral-8x7b",
                                   "--tensor-parallel", "2", "--trace", trace, "--requests", "600", "--concurrency", "64"],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stderr)
            print(json.dumps(json.loads(done.stdout) | {"device": name}))


if __name__ == "__main__":
    main()
