#!/usr/bin/env python3
"""Time between tokens of answers that are held to a format, beside a free answer of the same server, in turns.

    overhead.py URL [--seconds 60]

Prints a row per format: median over the rounds of the median and the mean gap between tokens.
"""
import argparse
import json
import statistics
import time
import urllib.request


def schema(of):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": of}}}


CASES = {
    "free": {},
    "string": schema({"type": "string", "minLength": 600}),
    "string, maxLength 2000": schema({"type": "string", "minLength": 600, "maxLength": 2000}),
    "json_object": {"response_format": {"type": "json_object"}},
    "array of bounded strings": schema(
        {"type": "array", "items": {"type": "string", "minLength": 40, "maxLength": 60}, "minItems": 20}),
    "array of integers": schema(
        {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 100000}, "minItems": 60}),
    "grammar of words": {"grammar": "root ::= ([a-zA-Z]+ [ ,.])+"},
}
QUESTION = "Write a story about a fox and a crow, in one long paragraph of at least two hundred words."


def gaps(url, wishes):
    body = {"messages": [{"role": "user", "content": QUESTION}], "stream": True, "temperature": 0, "max_tokens": 96}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body | wishes).encode(),
                                     {"content-type": "application/json"})
    times = []
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            choices = json.loads(line[6:])["choices"]
            if choices and choices[0]["delta"].get("content"):
                times.append(time.perf_counter())
    return [(b - a) * 1e3 for a, b in zip(times, times[1:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    rounds = {name: [] for name in CASES}
    for wishes in CASES.values():  # What is learnt once: masks, prompts.
        gaps(args.url, wishes)
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        for name, wishes in CASES.items():
            rounds[name].append(gaps(args.url, wishes))
    free = statistics.median(statistics.mean(g) for g in rounds["free"])
    for name, all_gaps in rounds.items():
        mean = statistics.median(statistics.mean(g) for g in all_gaps)
        middle = statistics.median(statistics.median(g) for g in all_gaps)
        print(f"{name:26} median {middle:6.2f} ms  mean {mean:6.2f} ms  {100 * (mean / free - 1):+5.1f} %"
              f"  ({len(all_gaps)} rounds)")


if __name__ == "__main__":
    main()
