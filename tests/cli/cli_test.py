#!/usr/bin/env python3
"""kvist on the command line:  cli_test.py KVIST [unittest options]"""
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

KVIST = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "kvist"
MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
MODEL = str(MODELS / "default-q8_0.gguf")
COMMANDS = ("serve", "run", "inspect", "tokenize", "bench", "bench-serve", "batch", "synth", "eval", "perplexity", "pull", "explain", "config", "cost", "tenant-key")
STORY = "Once upon a time there was a small dog. He lived near the river with a kind old man. "


class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.text = cls.folder / "story.txt"
        cls.text.write_text(STORY * 4)
        cls.long_text = cls.folder / "long.txt"
        cls.long_text.write_text(STORY * 100_000)
        cls.cases = cls.folder / "cases.jsonl"
        lines = (MODELS / "eval.jsonl").read_text().splitlines()
        cls.cases.write_text("\n".join(lines[:3]) + "\n")
        cls.many_cases = MODELS / "eval.jsonl"
        cls.env = {k: v for k, v in os.environ.items() if not k.startswith(("KVIST_", "HF_"))}
        cls.env["KVIST_MODELS"] = str(cls.folder / "store")

    def kvist(self, *arguments, stdin="", env=None, **options):
        options = {"input": stdin, "capture_output": True} | options
        return subprocess.run([KVIST, *map(str, arguments)], env=self.env | (env or {}), text=True, timeout=60, **options)

    def start(self, *arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        process = subprocess.Popen([KVIST, *map(str, arguments)], env=self.env, text=True, **options)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def fails(self, code, run, *texts):
        """This exit code, nothing on standard output, and all of these in the message."""
        self.assertEqual(run.returncode, code, run.stderr)
        self.assertEqual(run.stdout, "")
        for text in texts:
            self.assertIn(text, run.stderr)

    def json_lines(self, run):
        """What a run that must have worked printed: JSON lines and nothing else."""
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue(run.stdout.endswith("\n"))
        return [json.loads(line) for line in run.stdout.splitlines()]

    # What each command does with a model, quickly.
    def work(self, model=MODEL):
        return {
            "run": ["run", model, "-p", "hello", "-n", "3"],
            "inspect": ["inspect", model],
            "tokenize": ["tokenize", model, "-p", "hello world"],
            "bench": ["bench", model, "-p", "16", "-n", "4", "-r", "1"],
            "eval": ["eval", self.cases, "--model", model],
            "perplexity": ["perplexity", model, self.text],
        }


class EveryCommand(CliTest):
    def test_help(self):
        for command in COMMANDS:
            with self.subTest(command):
                run = self.kvist(command, "--help")
                self.assertEqual((run.returncode, run.stderr), (0, ""))
                self.assertIn("--json", run.stdout)
        self.assertEqual(self.kvist("--help").returncode, 0)
        self.assertRegex(self.kvist("--version").stdout, r"^kvist \d+\.\d+")

    def test_unknown_flag(self):
        for command in COMMANDS:
            with self.subTest(command):
                files = ["x", "y"] if command == "batch" else ["x"]
                self.fails(2, self.kvist(command, *files, "--frobnicate"), "--frobnicate")

    def test_missing_model_names_the_path(self):
        path = str(self.folder / "no-such-model.gguf")
        for command, arguments in (self.work(path) | {"serve": ["serve", path, "--port", "0"]}).items():
            with self.subTest(command):
                self.fails(1, self.kvist(*arguments), f"kvist {command}: ", path)

    def test_json_is_all_there_is_on_stdout(self):
        for command, arguments in self.work().items():
            with self.subTest(command):
                lines = self.json_lines(self.kvist(*arguments, "--json"))
                self.assertTrue(all(isinstance(line, dict) for line in lines))
        run = self.json_lines(self.kvist(*self.work()["run"], "--json"))[0]
        self.assertEqual(run["usage"]["completion_tokens"], 3)
        groups = self.json_lines(self.kvist(*self.work()["eval"], "--json"))
        self.assertEqual((groups[-1]["family"], groups[-1]["cases"]), ("all", 3))
        result = self.json_lines(self.kvist(*self.work()["perplexity"], "--json"))[0]
        self.assertGreater(result["perplexity"], 1)
        self.assertTrue(all("sha256" in line for line in self.json_lines(self.kvist("pull", "--list", "--json"))))

    def test_reader_that_leaves(self):
        for command, arguments in self.work().items():
            with self.subTest(command):
                read, write = os.pipe()
                os.close(read)
                try:
                    run = self.kvist(*arguments, "--json", capture_output=False, stdout=write, stderr=subprocess.PIPE)
                finally:
                    os.close(write)
                self.assertIn(run.returncode, (1, -signal.SIGPIPE), run.stderr)

    def test_full_disk_is_no_success(self):
        for command, arguments in self.work().items():
            with self.subTest(command), open("/dev/full", "w") as full:
                run = self.kvist(*arguments, "--json", capture_output=False, stdout=full, stderr=subprocess.PIPE)
                self.assertEqual(run.returncode, 1, run.stderr)
                self.assertIn("standard output cannot be written", run.stderr)

    def test_same_flags_everywhere(self):
        for command, flags in {"run": "tnc", "serve": "tc", "eval": "tnc", "perplexity": "tc"}.items():
            text = self.kvist(command, "--help").stdout
            for flag in flags:
                name = {"t": "-t,--threads", "n": "-n,--max-tokens", "c": "-c,--context"}[flag]
                self.assertIn(name, text, command)


class WhichCommand(CliTest):
    def test_store(self):
        folder = self.folder / "kv"
        folder.mkdir(mode=0o700)
        self.fails(1, self.kvist("store", "ls", folder), "kvist store ls: no store here")
        self.fails(1, self.kvist("store", "purge", "--all", self.folder / "none"), "none")
        bench = self.json_lines(self.kvist("store", "bench", folder, "--bytes", "2MiB", "--block", "20000", "--keep", "--json"))[0]
        self.assertEqual(bench["blocks"], 104)
        self.assertGreater(bench["share"], 0)
        store = folder / "bench"
        blocks = [json.loads(line) for line in self.kvist("store", "ls", store, "--json").stdout.splitlines()]
        self.assertEqual(len(blocks), 104)
        self.assertEqual({b["bytes"] for b in blocks}, {20000})
        self.assertEqual(self.json_lines(self.kvist("store", "verify", store, "--json"))[0]["damaged"], 0)
        segment = next(store.glob("*.kv"))
        self.assertEqual(segment.stat().st_mode & 0o777, 0o600)
        self.assertEqual(store.stat().st_mode & 0o777, 0o700)
        with open(segment, "r+b") as file:
            file.seek(blocks[7]["offset"] + 5000)
            file.write(b"damage")
        run = self.kvist("store", "verify", store)
        self.assertEqual(run.returncode, 1)
        self.assertIn(f"damaged: {blocks[7]['id']}", run.stdout)
        self.fails(1, self.kvist("store", "purge", store), "say whose blocks")
        tenants = self.folder / "tenants.toml"
        tenants.write_text('[[tenant]]\nname = "acme"\nkeys = ["key-of-acme"]\n')
        for tenant in "5", "acmy":
            run = self.kvist("store", "purge", store, "--tenant", tenant, "--tenants", tenants, "--json")
            self.fails(1, run, f"{store}: no block here is of a tenant '{tenant}'")
            self.assertEqual("did you mean 'acme'" in run.stderr, tenant == "acmy")
        self.fails(1, self.kvist("store", "purge", store, "--tenant", "acme"), "of a tenant 'acme'")
        purge = self.json_lines(self.kvist("store", "purge", store, "--tenant", "acme", "--tenants", tenants, "--json"))[0]
        self.assertEqual(purge, {"purged": 0, "blocks": 104})
        self.assertEqual(self.kvist("store", "gc", store).returncode, 0)
        with open(store / "lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.fails(1, self.kvist("store", "gc", store), "a running server writes to this store")
            self.assertTrue(self.json_lines(self.kvist("store", "stats", store, "--json"))[0]["in_use"])
        purge = self.json_lines(self.kvist("store", "purge", store, "--all", "--json"))[0]
        self.assertEqual(purge["blocks"], 0)
        self.assertEqual(self.kvist("store", "ls", store).stdout, "")
        self.assertEqual(list(store.glob("*.kv")), [])

    def test_unknown_command(self):
        run = self.kvist("frob", "x.gguf")
        self.fails(2, run, '"frob"', *COMMANDS)

    def test_no_command(self):
        self.fails(2, self.kvist(), "usage: kvist COMMAND", *COMMANDS)


class Values(CliTest):
    def test_numbers_that_are_none(self):
        cases = [("run", "--temp", "0 to 100"), ("run", "--top-p", "0 to 1"), ("run", "--min-p", "0 to 1"),
                 ("run", "--repeat-penalty", "0.01 to 100"), ("serve", "--drain-seconds", "0 to 86400"),
                 ("serve", "--pin-share", "0 to 1")]
        for command, flag, allowed in cases:
            for value in ("nan", "inf", "-inf", "-1", "1e9", "x", "1x"):
                with self.subTest(f"{command} {flag} {value}"):
                    self.fails(2, self.kvist(command, MODEL, f"{flag}={value}"), f"{flag}: {value} is not a number from {allowed}")

    def test_whole_numbers_outside(self):
        large = 1 << 32
        cases = [("serve", "--port", "65535", ("99999", "-1", "80x", "8e1")), ("serve", "--context", "4294967295", ("-5", large)),
                 ("serve", "--parallel", "4096", ("0", "-1", "5000")), ("serve", "--threads", "1024", ("-1", "2000")),
                 ("run", "--context", "4294967295", ("-5", "1.5", large)), ("run", "--max-tokens", "4294967295", ("0", "-1", large)),
                 ("run", "--top-k", "4294967295", ("-1", large)), ("run", "--seed", str(2**64 - 1), ("-1", 2**64)),
                 ("eval", "--limit", "4294967295", ("-1",)), ("eval", "--parallel", "1024", ("0", "9999")),
                 ("perplexity", "--stride", "4294967295", ("-1",)), ("pull", "--attempts", "1000", ("0", "x"))]
        for command, flag, largest, values in cases:
            for value in values:
                with self.subTest(f"{command} {flag} {value}"):
                    run = self.kvist(command, MODEL, f"{flag}={value}")
                    self.fails(2, run, f"{flag}: {value} is not a whole number from ", f" to {largest}")

    def test_numbers_are_decimal(self):
        run = self.kvist("run", MODEL, "-p", "hello", "-n", "010", "--ignore-eos", "--json")
        self.assertEqual(self.json_lines(run)[0]["usage"]["completion_tokens"], 10)

    def test_sizes(self):
        for value in ("0", "0KiB", "2GiB"):
            self.fails(2, self.kvist("serve", MODEL, "--port", "0", "--max-body", value), "--max-body", value, "1 B to 1.0 GiB")
        for flag in ("--max-body", "--kv-memory", "--kv-cold-memory", "--kv-disk-size", "--kv-disk-daily-writes"):
            self.fails(2, self.kvist("serve", MODEL, "--port", "0", "--kv-disk", "/x", flag, "many"), flag, "many")
            variable = "KVIST_SERVE_" + flag[2:].replace("-", "_").upper()
            run = self.kvist("serve", MODEL, "--port", "0", "--kv-disk", "/x", env={variable: "many"})
            self.fails(2, run, f"{variable}: {flag}", "many")
        self.fails(2, self.kvist("run", MODEL, "-p", "x", "--kv-memory", "many"), "--kv-memory", "many")

    def test_kv_type(self):
        for command in ("serve", "run", "bench", "eval", "perplexity"):
            with self.subTest(command):
                self.fails(2, self.kvist(command, "x", "--kv-type", "q4"), "--kv-type", "q4", "f16", "q8")
        work = self.work()
        for command in ("run", "bench", "eval", "perplexity"):
            with self.subTest(command):
                self.json_lines(self.kvist(*work[command], "--kv-type", "q8", "--json"))
        perplexity = [self.json_lines(self.kvist(*work["perplexity"], "--kv-type", kv_type, "--json"))[0]["perplexity"]
                      for kv_type in ("f16", "q8")]
        self.assertNotEqual(*perplexity)
        self.assertAlmostEqual(perplexity[1] / perplexity[0], 1, delta=0.02)
        bench = self.json_lines(self.kvist(*work["bench"], "--kv-type", "q8", "--json"))
        self.assertTrue(all(line["kv_type"] == "q8" for line in bench))

    def test_host(self):
        self.fails(1, self.kvist("serve", MODEL, "--port", "0", "--host", ""), "--host is empty")


class Cost(CliTest):
    def test_a_file_that_is_no_usage_database_is_told(self):
        for path in self.text, "/dev/null", self.folder:
            self.fails(1, self.kvist("cost", "--usage-db", path), f"kvist cost: {path}: this is no usage database\n")
        other = self.folder / "other.db"
        with sqlite3.connect(other) as db:
            db.execute("CREATE TABLE t (a)")
        self.fails(1, self.kvist("cost", "--usage-db", other), f"{other}: this is no usage database")
        text = self.folder / "text.db"
        shutil.copy(self.text, text)
        text.chmod(0o600)
        run = self.kvist("serve", MODEL, "--port", "0", "--usage-db", text)
        self.fails(1, run, f"kvist serve: {text}: this is no usage database\n")
        self.assertNotIn("PRAGMA", run.stderr)

    def test_paths_are_named_once(self):
        run = self.kvist("serve", MODEL, "--port", "0", "--kv-disk", self.text)
        self.fails(1, run, f"kvist serve: {self.text}: Not a directory\n")


class Settings(CliTest):
    """Flags from kvist.toml and the environment."""

    def write(self, text, name="kvist.toml"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def tokens(self, *arguments, env=None):
        run = self.kvist("run", "-p", "hello", "--temp", "0", "--json", *arguments, env=env)
        return self.json_lines(run)[0]["usage"]["completion_tokens"]

    def test_command_line_then_environment_then_file(self):
        file = self.write(f'[run]\nmodel = "{MODEL}"\nmax-tokens = 5\n[serve]\nport = 1\n')
        self.assertEqual(self.tokens("--config", file), 5)
        self.assertEqual(self.tokens("--config", file, env={"KVIST_RUN_MAX_TOKENS": "4"}), 4)
        self.assertEqual(self.tokens("--config", file, "-n", "3", env={"KVIST_RUN_MAX_TOKENS": "4"}), 3)
        self.assertEqual(self.tokens(env={"KVIST_CONFIG": str(file)}), 5)

    def test_the_users_own_file_is_found(self):
        home = self.folder / "home"
        self.write(f'[run]\nmodel = "{MODEL}"\nmax_tokens = 2\n', "home/.config/kvist/kvist.toml")
        self.assertEqual(self.tokens(env={"HOME": str(home), "XDG_CONFIG_HOME": ""}), 2)
        self.assertEqual(self.tokens(env={"XDG_CONFIG_HOME": str(home / ".config")}), 2)

    def test_faults_name_their_place(self):
        for text, place, what in (
            ("[serve\n", ":1:", "']'"),
            ("[serve]\nprot = 1\n", ":2:1: ", "did you mean 'port'"),
            ("[srve]\n", ":1:2: ", "did you mean 'serve'"),
            ("port = 1\n", ":1:1: ", "[serve]"),
            ("[serve]\nport = 99999\n", ":2:1: ", "99999"),
            ("[serve]\nkv_disk = '/x'\nkv-disk = '/y'\n", ":2:1: 'kv_disk' is 'kv-disk', which is set already at ", "bad.toml:3:1"),
            ("[serve]\n\n  port = {a = 1}\n", ":3:3: ", "must be a whole number"),
            ("[serve]\nport = '8080'\n", ":2:1: ", "'port' must be a whole number"),
            ("[serve]\nport = 8080.0\n", ":2:1: ", "'port' must be a whole number"),
            ("[serve]\nport = [1, 2]\n", ":2:1: ", "'port' must be a whole number"),
            ("[serve]\nmax-wait-seconds = true\n", ":2:1: ", "'max-wait-seconds' must be a number"),
            ("[serve]\nno-cache = 'true'\n", ":2:1: ", "'no-cache' must be true or false"),
            ("[serve]\nhost = true\n", ":2:1: ", "'host' must be a string"),
            ("[serve]\nhost = 5\n", ":2:1: ", "'host' must be a string"),
            ("[serve]\nkv-memory = 1.5\n", ":2:1: ", "'kv-memory' must be a string such as \"4GiB\", or a number of bytes"),
            ("[serve]\nkv-memory = 'many'\n", ":2:1: --kv-memory", "many"),
            ("[serve]\napi-key = ['a', false]\n", ":2:1: ", "'api-key' must be a string, or an array of these"),
            ("[serve]\nkv-disk-size = '1GiB'\n", ":2:1: --kv-disk-size needs --kv-disk", ""),
            ("[serve]\npolicy = 'best'\n", ":2:1: ", "best"),
            ("x" * (1 << 20) + "x", "", "larger than"),
        ):
            with self.subTest(text[:40]):
                path = self.write(text, "bad.toml")
                self.fails(2, self.kvist("serve", "--config", path), f"{path}{place}", what)
        self.fails(2, self.kvist("serve", "--config", self.folder / "none.toml"), "none.toml")
        self.fails(2, self.kvist("serve", env={"KVIST_SERVE_PORT": "tcp://10.0.0.1:80"}), "KVIST_SERVE_PORT: --port")

    def test_flags_that_would_do_nothing_are_refused(self):
        device = ("--device", "h100", "--model-shape", "llama-3.1-8b")
        for arguments, text in (
            (("serve", *device, "--kv-memory", "1GiB"), "--kv-memory does nothing with --device"),
            (("serve", *device, "--forget-below", "0.3"), "--forget-below does nothing with --device"),
            (("serve", *device, "--kv-disk", "/x"), "--kv-disk does nothing with --device"),
            (("serve", *device, "--threads", "2"), "--threads does nothing with --device"),
            (("serve", "--tokens-from-model"), "--tokens-from-model needs --device"),
            (("serve", *device, "--tokens-from-model", "--kv-memory", "1GiB"), "--kv-memory does nothing with --device"),
            (("serve", *device, "--tokens-from-model", "--emulated-output", "9"), "--emulated-output does nothing with --tokens-from-model"),
            (("serve", "--model-shape", "llama-3.1-8b"), "--model-shape needs --device"),
            (("serve", "--tensor-parallel", "1"), "--tensor-parallel needs --device"),
            (("serve", "--kv-admission", "a5"), "--kv-admission needs --kv-disk"),
            (("serve", "--no-kv-pacing"), "--no-kv-pacing needs --kv-cold-memory"),
            (("serve", "--kv-cold-memory", "64MiB", "--no-kv-pacing"), "--no-kv-pacing needs --kv-disk"),
            (("replay", "--trace", self.text, "--replicas", "2"), "--replicas needs --device"),
            (("replay", "--trace", self.text, "--device", "h100", "--route", "round-robin"), "--route needs --replicas"),
            (("serve", "--kv-cold-memory", "0", "--kv-cold-codec", "int8"), "--kv-cold-codec needs --kv-cold-memory"),
            (("serve", "--kv-disk", "/x", "--kv-admission", "all", "--kv-disk-daily-writes", "1GiB"), "--kv-disk-daily-writes does nothing with --kv-admission all"),
            (("serve", "--policy", "fcfs", "--prefills-max", "2"), "--prefills-max does nothing with --policy fcfs"),
            (("serve", "--policy", "fair", "--tpot-target-ms", "50"), "--tpot-target-ms does nothing with --policy fair"),
            (("serve", "--no-cache", "--pin-share", "0.5"), "--pin-share does nothing with --no-cache"),
            (("calibrate", "--decodes", "4"), "--decodes needs --steps"),
            (("sim", "--scenario", self.text, "--seed", "4"), "--seed does nothing with --scenario"),
            (("sim", "--for", "1", "--runs", "4"), "--runs does nothing with --for"),
            (("serve", "--kv-disk-read-only"), "--kv-disk-read-only needs --kv-disk"),
            (("serve", "--kv-disk", "/x", "--kv-disk-read-only", "--kv-disk-daily-writes", "1GiB"), "--kv-disk-daily-writes does nothing with"),
            (("replay", "--trace", self.text, "--device", "h100", "--share", "0.5"), "--share does nothing with --device"),
            (("replay", "--trace", self.text, "--real-time"), "--real-time needs --device"),
            (("replay", "--trace", self.text, "--host-memory", "1GiB"), "--host-memory needs --device"),
            (("replay", "--trace", self.text, "--device", "h100", "--host-link", "pcie4"), "--host-link needs --host-memory"),
            (("replay", "--trace", self.text, "--block-kib", "8"), "--block-kib needs --tiers"),
            (("calibrate", "--device", "h100"), "--device needs --profile"),
            (("batch", "a", "b", "--url", "http://127.0.0.1:9", "--threads", "2"), "--threads does nothing with --url"),
            (("batch", "a", "b", "--ca-file", "x.pem"), "--ca-file needs --url"),
            (("bench-serve", "--length-scale", "0.5"), "--length-scale needs --trace"),
        ):
            with self.subTest(" ".join(map(str, arguments))):
                self.fails(2, self.kvist(*arguments), text)
        fits = self.kvist("serve", self.folder / "none.gguf", *device, "--tokens-from-model", "--threads", "2", "--kv-type", "q8")
        self.fails(1, fits, "none.gguf")
        file = self.write('[serve]\nkv-memory = "1GiB"\n')
        self.fails(2, self.kvist("serve", *device, "--config", file), f"{file}:2:1: --kv-memory does nothing with --device")
        self.fails(2, self.kvist("serve", env={"KVIST_SERVE_DTYPE": "fp8"}), "KVIST_SERVE_DTYPE: --dtype needs --device")
        self.fails(2, self.kvist("sim", "--runs", "0"), "--runs")
        self.fails(2, self.kvist("serve", "--kv-memry", "1GiB"), "--kv-memry (did you mean 'kv-memory'?)")
        self.fails(2, self.kvist("srve"), "(did you mean 'serve'?)")
        self.fails(1, self.kvist("serve", "--port", "0", env={"KVIST_API_KEY": ""}), "KVIST_API_KEY is empty")

    def test_a_device_says_what_it_needs(self):
        run = self.kvist("serve", "--device", "h100")
        self.fails(1, run, "--device needs --model-shape", "llama-3.1-8b")
        azure = self.write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n", "azure.csv")
        self.fails(1, self.kvist("replay", "--trace", azure), "give --device")
        self.fails(1, self.kvist("replay", "--trace", azure, "--device", "h100"), "--device needs --model with")
        self.fails(2, self.kvist("replay", "--trace", azure, "--model-shape", "llama-3.1-8b"), "--model needs --device")
        lines = "".join(f"2023-11-16 18:17:{i:02}.0000000,{100_000 if i else 100},10\n" for i in range(40))
        long = self.write("TIMESTAMP,ContextTokens,GeneratedTokens\n" + lines, "long.csv")
        run = self.kvist("replay", "--trace", long, "--device", "h100", "--model-shape", "llama-3.1-8b", "--blocks", "1000")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.count(" x refused"), 1, run.stdout)
        self.assertIn("39 x refused", run.stdout)
        self.assertIn("note: 98 % of the requests, 39 of 40, were not answered", run.stderr)
        empty = self.write("TIMESTAMP,ContextTokens,GeneratedTokens\n", "empty.csv")
        self.fails(1, self.kvist("replay", "--trace", empty, "--device", "h100", "--model", "llama-3.1-8b"), "no request in it")

    def test_variables_with_a_typo_are_named(self):
        env = {"KVIST_RUN_MAX_TOKNS": "1", "KVIST_FROB": "1", "KVIST_DATA": "/data", "KVIST_GOLDEN_MODELS": "/m", "KVIST_SERVE_PORT": "1"}
        run = self.kvist("run", MODEL, "-p", "hello", "-n", "1", env=env)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("warning: the variable KVIST_RUN_MAX_TOKNS is not known and changes nothing (did you mean "
                      "'KVIST_RUN_MAX_TOKENS'?)", run.stderr)
        self.assertIn("KVIST_FROB is not known", run.stderr)
        self.assertEqual(run.stderr.count("is not known"), 2)

    def test_config_names_every_flag(self):
        text = self.kvist("config").stdout
        for flag in re.findall(r"--([a-z-]+)", self.kvist("serve", "--help").stdout.split("API key is required")[0]):
            if flag not in ("help", "config"):
                self.assertIn(f"\n# {flag} =", text)
        # What has a default may be written out and changes nothing.
        lines = [line.removeprefix("# ") if re.match(r"# [a-z-]+ = .", line) else line for line in text.splitlines()]
        path = self.write("\n".join(lines).replace("port = 8080", "port = 0").replace("json = false", "json = true"), "all.toml")
        process = self.start("serve", MODEL, "--config", path)
        threading.Thread(target=process.stderr.read, daemon=True).start()
        self.assertEqual(json.loads(process.stdout.readline())["event"], "ready")
        self.fails(2, self.kvist("config", "serf"), "serf")

    def test_settings_are_read_again_on_a_hangup(self):
        path = self.write('[serve]\nmax-connections = 10\nchunk = 64\nlog-level = "info"\n', "reread.toml")
        process = self.start("serve", MODEL, "--config", path, "--port", "0", "--max-body", "1MiB")
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(iter(process.stderr.readline, "")), daemon=True)
        reader.start()

        def said(text):
            for _ in range(200):
                if any(text in line for line in lines):
                    return True
                time.sleep(0.05)
            return False

        self.assertTrue(said("listening on"))
        path.write_text('[serve]\nmax-connections = 1\nchunk = 32\nmax-body = "2MiB"\nthreads = 1\n')
        process.send_signal(signal.SIGHUP)
        self.assertTrue(said("--max-connections has changed"), lines)
        self.assertTrue(said("--chunk has changed, and needs a restart"), lines)
        self.assertTrue(said("--threads has changed, and needs a restart"), lines)
        self.assertFalse(any("--max-body" in line for line in lines), "the command line wins")
        port = int(re.search(r"listening on http://127\.0\.0\.1:(\d+)", "".join(lines)).group(1))
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as second:
            second.settimeout(10)
            self.assertIn(b"503", second.recv(1000))
        # A fault changes nothing; what needs a restart is told again until there is one.
        path.write_text("[serve]\nmax-connections = 0\n")
        process.send_signal(signal.SIGHUP)
        self.assertTrue(said("settings stay as they were: "), lines)
        del lines[:]
        path.write_text("[serve]\nmax-connections = 1\nchunk = 32\n")
        process.send_signal(signal.SIGHUP)
        self.assertTrue(said("--chunk has changed, and needs a restart"), lines)
        self.assertFalse(any("--max-connections" in line for line in lines))

    def test_certificates_are_checked_before_the_model_is_read(self):
        self.fails(1, self.kvist("serve", "none.gguf", "--port", "0", "--tls-cert", "x.pem"), "--tls-cert needs --tls-key")
        self.fails(1, self.kvist("serve", "none.gguf", "--port", "0", "--tls-cert", "x.pem", "--tls-key", "x.key"), "x.pem")

    def test_log_lines_are_json(self):
        process = self.start("serve", MODEL, "--port", "0", "--log-format", "json")
        lines = [json.loads(process.stderr.readline()) for _ in range(2)]
        self.assertTrue(all({"time", "level", "message"} <= line.keys() for line in lines))

    def test_help_needs_no_settings(self):
        bad = self.write("[serve\n", "bad.toml")
        self.assertEqual(self.kvist("serve", "--help", "--config", bad).returncode, 0)


class Claims(CliTest):
    GOOD = """title = "Adds"
[[run]]
name = "one"
program = ["sh", "-c", "echo '{}'; echo '{\\"count\\": 2}'"]
[[claim]]
name = "two"
text = "It is two"
measured = "[run=one].count"
unit = "x"
accept = ">= 1"
"""

    def folder_of(self, name, files):
        folder = self.folder / name
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder

    def test_one_that_cannot_be_read_stops_no_other(self):
        folder = self.folder_of("some", {"A/claim.toml": self.GOOD, "B/claim.toml": "title = 5\n", "C/claim.toml": "title = \n"})
        run = self.kvist("claims", "--dir", folder, "--json")
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertEqual([(line["id"], line["state"]) for line in map(json.loads, run.stdout.splitlines())], [("A", "met")])
        self.assertIn(f"{folder}/B/claim.toml: 'title' must be a string", run.stderr)
        self.assertIn(f"{folder}/C/claim.toml:1:", run.stderr)
        self.assertEqual(self.kvist("claims", "A", "--dir", folder).returncode, 0)
        self.assertEqual(self.kvist("claims", "B", "--dir", folder).returncode, 1)
        self.fails(1, self.kvist("claims", "--record", "--dir", folder), "nothing is recorded", "B/claim.toml")
        self.fails(1, self.kvist("claims", "X", "--dir", folder), "no claim is called 'X'")

    def test_a_broken_record_is_named_as_what_it_is(self):
        folder = self.folder_of("recorded", {"A/claim.toml": self.GOOD, "results.jsonl": "{\n"})
        run = self.kvist("claims", "--recorded", "--dir", folder)
        self.fails(1, run, "results.jsonl:1: the line ends inside its JSON")

    def test_it_runs_itself_under_any_name(self):
        other = self.folder / "other-name"
        shutil.copy(KVIST, other)
        run_line = next(line for line in self.GOOD.splitlines() if line.startswith("program"))
        claim = self.GOOD.replace(run_line, 'kvist = ["tokenize", "${model}", "-p", "a", "--json"]')
        folder = self.folder_of("self/claims", {"A/claim.toml": claim})
        (self.folder / "self/models").mkdir()
        os.symlink(MODELS / "default-f16.gguf", self.folder / "self/models/default-f16.gguf")
        run = subprocess.run([other, "claims", "--dir", folder], env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("met", run.stdout)

    def test_elsewhere_the_error_names_the_flag(self):
        self.fails(1, self.kvist("claims", cwd=self.folder), "claims: no folder with a claim.toml; --dir names the folder")


class Run(CliTest):
    def test_empty_prompt(self):
        for arguments, stdin in ([], ""), ([], " \n"), (["-p", ""], ""), (["--raw"], ""):
            self.fails(1, self.kvist("run", MODEL, *arguments, stdin=stdin), "kvist run: the prompt is empty")

    def test_prompt_from_stdin(self):
        run = self.kvist("run", MODEL, "-n", "3", stdin="hello\n")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue(run.stdout.strip())

    def test_note_about_the_small_model(self):
        copy = self.folder / "other-name.gguf"
        copy.write_bytes(pathlib.Path(MODEL).read_bytes())
        for model in ([], [MODEL], [str(MODELS / "default-f16.gguf")], [str(copy)]):
            run = self.kvist("run", *model, "-p", "hello", "-n", "1")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(run.stderr.count("small model that comes with kvist"), 1, run.stderr)

    def test_context_beyond_the_trained_one_warns_and_works(self):
        run = self.kvist("run", MODEL, "-c", "9000", "--raw", "-n", "2", "--ignore-eos", "--json", stdin=STORY * 210)
        self.assertGreater(self.json_lines(run)[0]["usage"]["prompt_tokens"], 4096)
        self.assertIn("warning: --context 9000 is beyond the 4096 tokens", run.stderr)
        run = self.kvist("run", MODEL, "-c", "4096", "-p", "hello", "-n", "1")
        self.assertNotIn("warning", run.stderr)


class Signals(CliTest):
    def interrupt(self, process, after):
        """Waits for `after` on standard error, interrupts, gives back the rest of standard output and error."""
        line = ""
        if after:
            for line in process.stderr:
                if re.search(after, line):
                    break
            self.assertRegex(line, after)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        return out, line + err

    def test_run(self):
        process = self.start("run", MODEL, "-p", "Tell me a story.", "-n", "1000000", "--ignore-eos")
        self.assertTrue(process.stdout.read(1))
        _, err = self.interrupt(process, None)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("kvist run: interrupted", err)

    def test_eval_and_perplexity_report_progress_and_stop(self):
        commands = {"perplexity": (["perplexity", MODEL, self.long_text, "--json", "-t", "1"], r"^\d+ of \d+ tokens, "),
                    "eval": (["eval", self.many_cases, "--model", MODEL, "--json", "-t", "1"], r"^\d+ of 612 cases, ")}
        started = {name: self.start(*arguments) for name, (arguments, _) in commands.items()}
        for name, process in started.items():
            with self.subTest(name):
                out, err = self.interrupt(process, commands[name][1])
                self.assertEqual(process.returncode, 130, err)
                self.assertEqual(out, "", "progress is for standard error")
                self.assertNotIn("\r", err)
                self.assertIn(f"kvist {name}: ", err)

    def test_bar_on_a_terminal(self):
        ours, theirs = pty.openpty()
        run = self.kvist("eval", self.cases, "--model", MODEL, "--json", capture_output=False, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 1 << 16):
                shown += piece
        except OSError:  # The other end is closed.
            pass
        os.close(ours)
        self.assertEqual(len(self.json_lines(run)), len(run.stdout.splitlines()))
        self.assertRegex(shown.decode(), r"\r\d of 3 cases, .*\x1b\[K")

    def test_others_end(self):
        process = self.start("bench", MODEL, "-p", "4096", "-n", "4096", "-r", "1000")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        self.assertIn(process.returncode, (130, -signal.SIGINT))


class Serve(CliTest):
    def serve(self, *arguments):
        """A running server, and what it said when it was ready."""
        process = self.start("serve", MODEL, "--port", "0", "--json", *arguments)
        threading.Thread(target=process.stderr.read, daemon=True).start()
        ready = json.loads(process.stdout.readline())
        self.assertEqual(ready["event"], "ready")
        return process, ready

    def stop(self, process, seconds_max):
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
        self.assertEqual(process.returncode, 0)
        self.assertLess(time.monotonic() - begin, seconds_max)
        self.assertEqual(process.stdout.read(), "", "one object is all")

    def test_starts_answers_and_ends(self):
        process, ready = self.serve()
        with urllib.request.urlopen(ready["url"] + "/health", timeout=10) as answer:
            self.assertEqual(json.load(answer), {"status": "ok"})
        self.stop(process, 2)

    def ask(self, url, headers=None):
        body = json.dumps({"prompt": STORY, "max_tokens": 4}).encode()
        request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"} | (headers or {}))
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["id"]

    def test_explain(self):
        process, ready = self.serve("--api-key", "k")
        url = ready["url"]
        explain = ["explain", "--url", url, "--api-key", "k"]
        self.fails(1, self.kvist(*explain), "no request has ended there yet")
        first, second = (self.ask(url, {"Authorization": "Bearer k"}) for _ in range(2))
        run = self.kvist(*explain)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn(f"{second}: completion, length, 4 output tokens in ", run.stdout)
        self.assertIn(f"computed by {first}, ", run.stdout)
        self.assertRegex(run.stdout, r"tokens +\d+ prompt: \d+ reused, \d+ copied; 4 computed, 3 of them output")
        self.assertRegex(run.stdout, r"steps +4 in ")
        self.assertNotIn("Once upon", run.stdout)
        self.assertIn(f"{first}: ", self.kvist(*explain, first).stdout)
        line = self.json_lines(self.kvist("explain", first, "--url", url + "/", "--json", env={"KVIST_API_KEY": "k"}))[0]
        self.assertEqual((line["id"], line["choices"][0]["tokens"]["reused"]), (first, 0))
        self.fails(1, self.kvist("explain", "--url", url), "kvist explain: ", "an API key is required")
        self.fails(1, self.kvist(*explain, "cmpl-0"), "nothing is known of a request 'cmpl-0'")
        self.fails(1, self.kvist(*explain, "../memory"), "is no id of a request")
        self.stop(process, 2)
        self.fails(1, self.kvist(*explain), url)

    @unittest.skipUnless(shutil.which("openssl"), "openssl makes the certificate")
    def test_a_certificate_of_its_own_is_believed_when_it_is_named(self):
        cert, key = self.folder / "own.pem", self.folder / "own.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
                        "-out", cert, "-days", "60", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                       check=True, capture_output=True)
        process, ready = self.serve("--tls-cert", cert, "--tls-key", key)
        url = ready["url"].replace("127.0.0.1", "localhost")
        self.fails(1, self.kvist("explain", "--url", url), "--ca-file names whom to believe")
        self.fails(1, self.kvist("explain", "--url", url, "--ca-file", cert), "no request has ended there yet")
        self.fails(1, self.kvist("explain", "--url", url, "--ca-file", self.folder / "none.pem"), "none.pem")
        load = ("bench-serve", "--url", url, "--requests", "2", "--output-tokens", "4", "--json")
        self.assertEqual(self.json_lines(self.kvist(*load, "--ca-file", cert))[0]["answered"], 2)
        refused = self.kvist(*load)
        self.assertEqual(refused.returncode, 1)
        self.assertEqual(json.loads(refused.stdout)["outcomes"]["unreachable"], 2)
        requests, answers = self.folder / "tls-in.jsonl", self.folder / "tls-out.jsonl"
        requests.write_text('{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 2}}\n')
        done = self.json_lines(self.kvist("batch", requests, answers, "--url", url, "--ca-file", cert, "--json"))[0]
        self.assertEqual((done["answered"], done["failed"]), (1, 0))
        self.stop(process, 2)

    def test_half_sent_requests_do_not_hold_it_up(self):
        process, ready = self.serve("--drain-seconds", "60")
        address = ("127.0.0.1", int(ready["url"].rsplit(":", 1)[1]))
        with socket.create_connection(address) as head, socket.create_connection(address) as body:
            head.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
            body.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            time.sleep(0.2)
            self.stop(process, 2)

    def test_large_prompts_are_refused_unread(self):
        process, ready = self.serve()
        content = "x" * (30 << 20)
        body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
        request = urllib.request.Request(ready["url"] + "/v1/chat/completions", body, {"Content-Type": "application/json"})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        with refused.exception as answer:
            error = json.load(answer)["error"]
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertRegex(error["message"], r"the prompt has 314\d{5} bytes, but the context of 4096 tokens holds at most \d+")
        self.stop(process, 2)

    def test_says_what_is_served(self):
        process = self.start("serve", MODEL, "--port", "0")
        for line in process.stderr:
            if "listening on http://127.0.0.1:" in line:
                break
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=20)
        self.assertEqual((process.returncode, out), (0, ""), "nothing without --json")


if __name__ == "__main__":
    unittest.main()
