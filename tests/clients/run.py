#!/usr/bin/env python3
"""Starts a server on a free loopback port, runs one client's tests against it, stops the server.

    run.py --kvist build/kvist --model models/default-q8_0.gguf --client python|node --work FOLDER [--api-key KEY]

The client's packages are installed into FOLDER when its lock changed. Exit status: the tests', or 1 when the server does not
start or does not end cleanly.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent
START_SECONDS, TEST_SECONDS, STOP_SECONDS = 120, 900, 60


def run(command, folder):
    subprocess.run(command, cwd=folder, check=True, timeout=TEST_SECONDS)


def prepare(client, work):
    """Copies the tests to `work`, installs what they lock, returns the command that runs them."""
    shutil.copytree(SOURCE / client, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
    lock = work / ("requirements.txt" if client == "python" else "package-lock.json")
    wanted, stamp = hashlib.sha256(lock.read_bytes()).hexdigest(), work / "installed"
    fresh = not stamp.exists() or stamp.read_text() != wanted
    if client == "python":
        python = work / "venv" / "bin" / "python3"
        if fresh:
            run([sys.executable, "-m", "venv", "--clear", "venv"], work)
            run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"], work)
        command = [python, "-m", "unittest"]
    else:
        if fresh:
            run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], work)
        command = ["npm", "test"]
    stamp.write_text(wanted)
    return command


def start(arguments):
    command = [arguments.kvist, "serve", arguments.model, "--host", "127.0.0.1", "--port", "0", "--json"]
    if arguments.api_key:
        command += ["--api-key", arguments.api_key]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGALRM, lambda *_: server.kill())
    signal.alarm(START_SECONDS)
    line = server.stdout.readline()
    signal.alarm(0)
    if not line:
        server.wait()
        sys.exit("the server did not start")
    return server, json.loads(line)["url"].rstrip("/")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kvist", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--client", choices=["python", "node"], required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--api-key", default="")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    command = prepare(arguments.client, arguments.work)
    server, url = start(arguments)
    environment = dict(os.environ, KVIST_URL=url)
    if arguments.api_key:
        environment["KVIST_API_KEY"] = arguments.api_key
    code = 1
    try:
        code = subprocess.run(command, cwd=arguments.work, env=environment, timeout=TEST_SECONDS).returncode
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            ended = server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            ended = "killed"
        if ended != 0:
            print(f"the server ended with {ended}, expected 0", file=sys.stderr)
            code = code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
