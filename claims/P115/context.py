#!/usr/bin/env python3
"""Four costs of a long context against a short one, for a 34B model on an A100.

    context.py KVIST DEVICES     one JSON object per context
"""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import emulated

KV_BYTES = 60 * 2 * 8 * 128 * 2  # Of a token: 60 layers, 8 KV heads of 128 features, bf16.
OUTPUT = 250
MEMORY_SHARE = 0.98  # Nearly all of it, as the source counts: the weights leave 15 GB.


def main():
    with tempfile.TemporaryDirectory() as folder:
        lab = emulated.Lab(*sys.argv[1:], folder)
        link = lab.device("links/pcie4")
        for context in (4096, 50_000):
            run = lab.replay("a100", "yi-34b", [(0, context, OUTPUT)], "--memory-share", MEMORY_SHARE, "--max-batched-tokens", 8192)
            many = lab.replay("a100", "yi-34b", [(0, context, OUTPUT)] * 40, "--memory-share", MEMORY_SHARE, "--max-batched-tokens", 8192)
            users = run["kv_blocks"] * 16 // (context + OUTPUT)
            swap_s = 2 * context * KV_BYTES / (link["bandwidth_gb_s"] * 1e9 * link["efficiency"][-1][1])
            print(json.dumps({"context": context, "prefill_s": run["ttft_ms"]["mean"] / 1e3, "users": users, "answers_per_min": 60 * many["requests_per_s"],
                              "decode_s": run["tpot_ms"]["mean"] * OUTPUT / 1e3, "switch_s": swap_s, "kv_gb": context * KV_BYTES / 1e9}))


if __name__ == "__main__":
    main()
