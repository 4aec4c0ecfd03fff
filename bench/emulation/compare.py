#!/usr/bin/env python3
"""This machine beside its emulation: the same requests, over HTTP, to a server that computes and to one whose device is emulated.

    compare.py KVIST MODEL.gguf [--calibration FOLDER] [--rate R] [--requests N] [--input N] [--output N] [--rounds N] [--json]

Each round calibrates (`kvist calibrate --steps`) unless a folder with a calibration is given, asks the real server, then the emulated
one, with arrivals and texts of one seed; errors are those of medians over rounds. Wants a quiet machine: the emulated server does not
know who else computes.
"""
import argparse
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

FIGURES = {
    "TPOT mean": lambda r: r["tpot_ms"]["mean"],
    "ITL mean": lambda r: r["itl_ms"]["mean"],
    "end to end mean": lambda r: r["e2e_ms"]["mean"],
    "TTFT mean": lambda r: r["ttft_ms"]["mean"],
    "output tokens/s": lambda r: r["output_tokens_per_s"],
    "TPOT P99": lambda r: r["tpot_ms"]["p99"],
    "TTFT P99": lambda r: r["ttft_ms"]["p99"],
}
PARALLEL = 8  # Requests that run at once: as many single tokens as were measured side by side.
CONTEXT = 512  # Tokens of a request, at most: what calibration measures.
START_S = 120


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


class Server:
    def __init__(self, kvist, model, log, *flags):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        command = [kvist, "serve", model, "--port", self.url.rsplit(":", 1)[1], "--parallel", PARALLEL, "--no-cache", *flags]
        self.process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log)

    def __enter__(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(self.url + "/health", timeout=1).close()
                return self.url
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        sys.exit("a server did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvist")
    parser.add_argument("model")
    parser.add_argument("--calibration")
    parser.add_argument("--rate", type=float, default=2)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--input", type=int, default=200)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.calibration or temporary)
        device = folder / "machine.toml"
        log = open(pathlib.Path(temporary) / "log", "w", encoding="utf-8")
        emulated = ["--device", device, "--model-shape", args.model, "--profile", folder, "--emulated-output", 0]
        seen = {"measured": [], "emulated": []}
        for seed in range(args.rounds):
            if not args.calibration:
                run(args.kvist, "calibrate", args.model, "--steps", folder, "--decodes", PARALLEL, "--context", CONTEXT, "-o", device, "--json")
            for how, flags in (("measured", []), ("emulated", emulated)):
                with Server(args.kvist, args.model, log, *flags) as url:
                    load = [args.kvist, "bench-serve", "--url", url, "--json", "--ignore-eos", "--endpoint", "completions", "--seed", seed, "--input-tokens", args.input, "--output-tokens", args.output]
                    run(*load, "--concurrency", 2, "--requests", 4)  # Warm, and not counted.
                    seen[how].append(json.loads(run(*load, "--rate", args.rate, "--requests", args.requests)))
        for name, figure in FIGURES.items():
            measured, seen_emulated = (statistics.median(map(figure, seen[how])) for how in ("measured", "emulated"))
            row = {"phase": name, "of": "tokens" if name in ("TPOT mean", "ITL mean") else "requests", "measured": measured, "emulated": seen_emulated, "error": seen_emulated / measured - 1}
            print(json.dumps(row) if args.json else f"{name:<18}{measured:>12.2f}{seen_emulated:>12.2f}{100 * row['error']:>9.1f} %")


if __name__ == "__main__":
    main()
