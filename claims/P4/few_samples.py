#!/usr/bin/env python3
"""Step times of a device of which ten were measured, from the efficiencies of another device.

    few_samples.py KVIST DEVICES PROFILES     one JSON object per device, held-out steps, mean of five draws
"""
import json
import pathlib
import statistics
import subprocess
import sys

SEEDS = 5
DEVICES = {
    "rtx-pro-6000": ("rtx-4090", "qwen3-32b", "RTXPRO6000_Qwen_Qwen3-32B_bf16_tp1"),
    "rtx-4090": ("rtx-pro-6000", "llama-3.1-8b", "RTX4090_meta-llama_Llama-3.1-8B_bf16_tp1"),
}


def main():
    kvist, devices, profiles = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    for name, (like, model, profile) in DEVICES.items():
        errors = []
        for seed in range(1, SEEDS + 1):
            done = subprocess.run([kvist, "calibrate", "--devices", devices, "--device", name, "--like", like, "--model-shape", model, "--profile", str(profiles / profile),
                                   "--samples", "10", "--seed", str(seed), "--json"], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stderr)
            errors.append(json.loads(done.stdout)["held_out"])
        print(json.dumps({"device": name, "like": like, "borrowed": 100 * statistics.mean(e["error_before"] for e in errors), "calibrated": 100 * statistics.mean(e["error_after"] for e in errors),
                          "worst": 100 * max(e["error_after"] for e in errors)}))


if __name__ == "__main__":
    main()
