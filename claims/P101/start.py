#!/usr/bin/env python3
"""A model of how long kvist takes from its start to the first token, learned from three models and asked about two others.

    start.py KVIST     JSON objects: rates, then one per model that was predicted

Six parts: process and threads, opening the file, tokenizer (beside the weights), weights read and packed, memory and buffers, first prompt.
Weights and the first prompt go by bytes of weights, the tokenizer by size of the vocabulary, the rest is constant.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

KNOWN = ("smollm2-135m", "gemma3-270m", "qwen3-0.6b")
ASKED = ("qwen2.5-0.5b", "llama-3.2-1b")
VOCABULARY = {"smollm2-135m": 49152, "gemma3-270m": 262144, "qwen3-0.6b": 151936, "qwen2.5-0.5b": 151936, "llama-3.2-1b": 128256}
STARTS = 8


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def start(kvist, path):
    """@return the load row of the fastest of some starts with nothing packed"""
    rows = []
    for _ in range(STARTS):
        out = run(kvist, "bench", path, "-p", 16, "-n", 0, "-r", 1, "--packed-cache", "off", "--json")
        rows += [row for row in map(json.loads, out.splitlines()) if row["name"] == "load"]
    return min(rows, key=lambda row: row["first_token_s"])


def rate(pairs):
    """Least squares through the origin of shares: the mean of quotients."""
    return sum(y / x for x, y in pairs) / len(pairs)


def main():
    kvist = sys.argv[1]
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in KNOWN + ASKED:
            path = pathlib.Path(folder) / f"{model}.gguf"
            run(kvist, "synth", model, "--type", "q4_0", "-o", path)
            rows[model] = start(kvist, path)
            path.unlink()
    known = [rows[m] for m in KNOWN]
    weights = rate([(r["packed_bytes"], r["weights_s"]) for r in known])
    prompt = rate([(r["packed_bytes"], r["first_prompt_s"]) for r in known])
    tokenizer = rate([(VOCABULARY[m], rows[m]["tokenizer_s"]) for m in KNOWN])
    opening = sum(r["seconds"] - max(r["weights_s"], r["tokenizer_s"]) for r in known) / len(known)
    rest = sum(r["first_token_s"] - r["seconds"] - r["first_prompt_s"] for r in known) / len(known)
    print(json.dumps({"what": "rates", "weights_gb_per_s": 1e-9 / weights, "tokenizer_us_per_word": 1e6 * tokenizer, "opening_ms": 1e3 * opening, "rest_ms": 1e3 * rest}))
    for model in ASKED:
        size = rows[model]["packed_bytes"]
        predicted = rest + opening + max(weights * size, tokenizer * VOCABULARY[model]) + prompt * size
        print(json.dumps({"what": "start", "model": model, "seconds": rows[model]["first_token_s"], "predicted": predicted, "error": predicted / rows[model]["first_token_s"] - 1}))


if __name__ == "__main__":
    main()
