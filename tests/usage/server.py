"""Starts `kvist serve` on the small model and waits until it is ready."""
import json
import pathlib
import subprocess

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "default-q8_0.gguf"


def start(kvist, *arguments, **options):
    process = subprocess.Popen([kvist, "serve", str(MODEL), "--port", "0", "--json", "--log-level", "warn", *map(str, arguments)],
                               stdout=subprocess.PIPE, text=True, **options)
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("kvist serve did not start")
    return process, json.loads(line)["url"]
