#!/usr/bin/env python3
"""A short soak of the real program:  soak.py KVIST NODE [options of bench/soak/soak.mjs]"""
import pathlib
import signal
import subprocess
import sys
import tempfile

import server

SOAK = pathlib.Path(__file__).resolve().parents[2] / "bench" / "soak" / "soak.mjs"

kvist, node, *options = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    process, url = server.start(kvist, "--queue", 16, "--parallel", 8, "--kv-memory", "32MiB", "--usage-db", f"{folder}/usage.db")
    try:
        soak = subprocess.run([node, str(SOAK), "--url", url, "--pid", str(process.pid), *options])
    finally:
        process.send_signal(signal.SIGINT)
        ended = process.wait(60)
sys.exit(soak.returncode or ended)
