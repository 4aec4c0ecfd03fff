#!/usr/bin/env python3
"""One request on a device that multiplies in its memory banks, and on a GPU.

    pim.py KVIST DEVICES     one JSON object per model
"""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import emulated


def main():
    with tempfile.TemporaryDirectory() as folder:
        lab = emulated.Lab(*sys.argv[1:], folder)
        for model in ("gpt2-small", "gpt3-xl"):
            pim, gpu = (lab.replay(device, model, [(0, 32, 512)], "--memory-share", 0.98) for device in ("pim-gpt", lab.variant("l4", "eager_above_tokens", 0.5)))
            print(json.dumps({"model": model, "pim_ms": pim["tpot_ms"]["mean"], "gpu_ms": gpu["tpot_ms"]["mean"], "faster": gpu["tpot_ms"]["mean"] / pim["tpot_ms"]["mean"],
                              "less_energy": gpu["emulation"]["joules"] / pim["emulation"]["joules"]}))


if __name__ == "__main__":
    main()
