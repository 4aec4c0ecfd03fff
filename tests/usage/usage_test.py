#!/usr/bin/env python3
"""Usage of the real program, to the token, also after kill -9:  usage_test.py KVIST [unittest options]"""
import http.client
import json
import os
import pathlib
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request

import server

KVIST = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "kvist"


class Client(threading.Thread):
    """Streams a completion and counts the tokens that come, by the answer's id, until the end or the connection's."""

    def __init__(self, url, prompt, max_tokens, leave_after=None):
        super().__init__()
        self.address = urllib.parse.urlparse(url).netloc
        self.body = {"prompt": prompt, "max_tokens": max_tokens, "logprobs": 0, "stream": True, "ignore_eos": True,
                     "stream_options": {"include_usage": True}}
        self.leave_after = leave_after
        self.id, self.tokens, self.usage, self.left = None, 0, None, False

    def run(self):
        connection = http.client.HTTPConnection(self.address, timeout=120)
        try:
            connection.request("POST", "/v1/completions", json.dumps(self.body))
            for line in connection.getresponse():
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                self.id = chunk["id"]
                self.usage = chunk.get("usage") or self.usage
                for choice in chunk["choices"]:
                    self.tokens += len((choice.get("logprobs") or {}).get("tokens", []))
                if self.leave_after is not None and self.tokens >= self.leave_after:
                    self.left = True
                    return
        except (OSError, http.client.HTTPException, ValueError):
            pass  # The server was killed in the middle of a line.
        finally:
            connection.close()


class UsageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.db = pathlib.Path(folder.name) / "usage.db"

    def start(self):
        process, url = server.start(KVIST, "--parallel", 4, "--kv-memory", "32MiB", "--usage-db", self.db)
        self.addCleanup(self.end, process)
        return process, url

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def rows(self):
        with sqlite3.connect(self.db) as db:
            db.row_factory = sqlite3.Row
            return {row["request"]: row for row in db.execute("SELECT * FROM requests")}

    def test_a_kill_loses_no_token(self):
        draw = random.Random(7)
        clients = []
        for round in range(3):
            process, url = self.start()
            mine = [Client(url, f"Once upon a time there were {i} dogs in round {round}. They", 1500 if i % 2 else 20,
                           leave_after=draw.randrange(1, 30) if i % 5 == 0 else None) for i in range(12)]
            for client in mine:
                client.start()
            time.sleep(draw.uniform(0.5, 2))
            process.send_signal(signal.SIGKILL)
            process.wait()
            for client in mine:
                client.join()
            clients += mine
        process, url = self.start()  # Takes over what the last one left.
        rows = self.rows()
        crashed = 0
        for client in clients:
            if client.id is None:
                continue  # Was told nothing.
            row = rows[client.id]
            if client.usage:  # Was told all: before its row was written, perhaps, but it is.
                self.assertEqual(row["generated_tokens"], client.usage["completion_tokens"])
                self.assertEqual(row["prompt_tokens"], client.usage["prompt_tokens"])
                self.assertEqual(row["cached_tokens"], client.usage["prompt_tokens_details"]["cached_tokens"])
                self.assertEqual(row["outcome"], "length")
            else:
                self.assertGreaterEqual(row["generated_tokens"], client.tokens)
                if not client.left:  # What was under way between the engine and the client.
                    crashed += 1
                    self.assertLessEqual(row["generated_tokens"], client.tokens + 8)
                    self.assertIn(row["outcome"], ("crash", "length"))
            self.assertGreater(row["kv_hot_byte_s"] if row["outcome"] != "crash" else 1, 0)
        self.assertGreater(crashed, 0)
        total = json.load(urllib.request.urlopen(f"{url}/kvist/usage?group_by="))["data"][0]
        self.assertEqual(total["generated_tokens"], sum(row["generated_tokens"] for row in rows.values()))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 0)

    def test_cost_reads_the_database(self):
        process, url = self.start()
        client = Client(url, "Once upon a time", 50)
        client.run()
        urllib.request.urlopen(f"{url}/kvist/usage").read()
        prices = self.db.with_name("prices.toml")
        prices.write_text("[machine]\ncost_per_hour = 3600\n[price]\nper_million_generated_tokens = 1000000\n")
        run = lambda *more: subprocess.run([KVIST, "cost", "--usage-db", self.db, "--prices", prices, *more], capture_output=True, text=True)
        row = json.loads(run("--json").stdout)["data"][0]
        self.assertEqual(row["generated_tokens"], 50)
        self.assertEqual(row["revenue"], 50)
        self.assertAlmostEqual(row["cost"], row["step_seconds"], places=6)
        self.assertEqual(run("--min-margin", "0.1").returncode, 0)
        self.assertEqual(run("--min-margin", "1").returncode, 1)
        title, _, head, cells = run().stdout.splitlines()[:4]
        columns = "tenant requests prompt cached generated step_s hot_memory cost revenue margin cost/query".split()
        self.assertEqual([name.strip().replace(" ", "_") for name in re.split("  +", head)], columns)
        values = dict(zip(columns, re.split("  +", cells)))
        self.assertEqual((values["tenant"], values["generated"], values["revenue"]), ("-", "50", "50.00"))
        self.assertRegex(values["hot_memory"], r"^[\d.]+ (B|KiB|MiB) h$")
        self.assertRegex(values["cost"], r"^(0\.0*[1-9]\d\d|\d+\.\d\d) USD$")
        self.assertIn(" cost ", run("--group-by", "request").stdout)
        tenants = self.db.with_name("tenants.toml")
        tenants.write_text('[[tenant]]\nname = "ann"\nkeys = ["key-of-ann"]\nprices = "prices.toml"\n')
        table = run("--tenants", tenants, "--group-by", "request").stdout
        self.assertIn("generated", table)
        self.assertNotIn("cost", table, "it is the tenant that has a price")
        missing = run("--tenant", "anna", "--tenants", tenants)
        self.assertEqual((missing.returncode, missing.stdout), (1, ""))
        self.assertIn("there is no tenant 'anna' (did you mean 'ann'?)", missing.stderr)
        self.assertEqual(run("--tenant", "ann", "--tenants", tenants).returncode, 0)
        self.assertEqual(run("--from", "tomorrow").returncode, 1)
        article = pathlib.Path(__file__).resolve().parents[2] / "claims" / "A2"
        tables = subprocess.run([KVIST, "cost", "--article", article], capture_output=True, text=True).stdout
        for cell in ("21,500+", "$75.0 Billion / year", "12x", "$15.00 to $45.00", "7,500x", "35% to 52%"):
            self.assertIn(cell, tables)


if __name__ == "__main__":
    unittest.main()
