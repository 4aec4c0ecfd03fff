#!/usr/bin/env python3
"""Deployment report: time to the first token, time per token, memory and energy of models on one device.

    report.py KVIST DEVICES DEVICE PROMPT OUTPUT MODEL...     one JSON object per model
"""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import emulated

SHARE = 0.98  # Of the device's memory: whatever is not KV blocks then is weights.
KV_BYTES = {"gpt-oss-20b": 12 * 2 * 8 * 64 * 2, "qwen3-32b": 64 * 2 * 8 * 128 * 2, "yi-34b": 60 * 2 * 8 * 128 * 2}  # Of a token; half of gpt-oss' layers have windows.


def main():
    kvist, devices, device, prompt, output, *models = sys.argv[1:]
    prompt, output = int(prompt), int(output)
    with tempfile.TemporaryDirectory() as folder:
        lab = emulated.Lab(kvist, devices, folder)
        capacity = sum(m["capacity_gib"] for m in lab.device(device)["memory"]) * 2**30
        for model in models:
            run = lab.replay(device, model, [(0, prompt, output)], "--memory-share", SHARE)
            weights = SHARE * capacity - run["kv_blocks"] * 16 * KV_BYTES[model]
            print(json.dumps({"model": model, "ttft_ms": run["ttft_ms"]["mean"], "tpot_ms": run["tpot_ms"]["mean"], "e2e_ms": run["e2e_ms"]["mean"],
                              "memory_gb": (weights + (prompt + output) * KV_BYTES[model]) / 1e9, "joules_per_1000": 1e3 * run["emulation"]["joules"] / output}))


if __name__ == "__main__":
    main()
