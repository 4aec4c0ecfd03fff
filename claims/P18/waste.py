#!/usr/bin/env python3
"""Memory that requests of recorded traces take but do not use, by the unit in which memory is given out.

  waste.py mooncake_conversation.jsonl azure_2023_conv.csv ...

Blocks of 16 tokens hold all layers. Pages of the system (vAttention) belong to one layer's keys or values of one request, so
each request ends with a partly used page in each of them. Nothing is shared here; sharing would make blocks better still.
"""
import csv
import json
import sys

BLOCK_TOKENS = 16
SHAPES = {  # bytes of a token's keys (or values) in one layer, f16
    "llama-3.2-1b": 8 * 64 * 2,
    "llama-3-8b": 8 * 128 * 2,
}
PAGES = {"64 KiB": 64 << 10, "2 MiB": 2 << 20}


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
        print(f"{path}: {len(tokens)} requests, {sum(tokens) / len(tokens):.0f} tokens each")
        blocks = 1 - sum(tokens) / sum(up(t, BLOCK_TOKENS) for t in tokens)
        print(f"  blocks of {BLOCK_TOKENS} tokens: {100 * blocks:.2f} %")
        for shape, token_bytes in SHAPES.items():
            for name, page in PAGES.items():
                taken = sum(up(t * token_bytes, page) for t in tokens)
                print(f"  {shape}, pages of {name} ({page // token_bytes} tokens): {100 * (1 - sum(tokens) * token_bytes / taken):.2f} %")


if __name__ == "__main__":
    main()
