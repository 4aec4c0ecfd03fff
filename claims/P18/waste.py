#!/usr/bin/env python3
"""Memory that requests of recorded traces take but do not use, by the unit in which memory is given out.

  waste.py mooncake_conversation.jsonl azure_2023_conv.csv ...

Prints one JSON object per trace, shape and size of pages.

Blocks of 16 tokens hold all layers. Pages of the system (vAttention) belong to one layer's keys or values of one request, so
each request ends with a partly used page in each of them. Nothing is shared here; sharing would make blocks better still.
"""
import csv
import json
import os
import sys

BLOCK_TOKENS = 16
SHAPES = {  # bytes of a token's keys (or values) in one layer, f16
    "llama-3.2-1b": 8 * 64 * 2,
    "llama-3-8b": 8 * 128 * 2,
}
PAGES = {"64KiB": 64 << 10, "2MiB": 2 << 20}


def lengths(path):
    """Tokens of each request when it ends: prompt and answer."""
    with open(path, encoding="utf-8") as file:
        if path.endswith(".csv"):
            return [int(row["ContextTokens"]) + int(row["GeneratedTokens"]) for row in csv.DictReader(file)]
        return [row["input_length"] + row["output_length"] for row in map(json.loads, file)]


def up(value, unit):
    return -(-value // unit) * unit


def main():
    for path in sys.argv[1:]:
        tokens = lengths(path)
        of = {"trace": os.path.basename(path), "requests": len(tokens), "tokens_each": round(sum(tokens) / len(tokens))}
        blocks = 1 - sum(tokens) / sum(up(t, BLOCK_TOKENS) for t in tokens)
        print(json.dumps(of | {"pages": "blocks", "tokens": BLOCK_TOKENS, "waste": round(blocks, 6)}))
        for shape, token_bytes in SHAPES.items():
            for name, page in PAGES.items():
                taken = sum(up(t * token_bytes, page) for t in tokens)
                waste = 1 - sum(tokens) * token_bytes / taken
                print(json.dumps(of | {"pages": name, "model": shape, "tokens": page // token_bytes, "waste": round(waste, 6)}))


if __name__ == "__main__":
    main()
