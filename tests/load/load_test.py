#!/usr/bin/env python3
"""kvist bench-serve against a fake server and against kvist's own:  load_test.py KVIST [unittest options]"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.dom.minidom

from fake_server import FakeServer

KVIST = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "kvist"
MODEL = str(pathlib.Path(__file__).resolve().parents[2] / "models" / "default-q8_0.gguf")
ENV = {k: v for k, v in os.environ.items() if not k.startswith("KVIST_")}


def run(*arguments, code=0):
    done = subprocess.run([KVIST, "bench-serve", *map(str, arguments)], capture_output=True, text=True, timeout=120, env=ENV)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def figures(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code).stdout)


class Fake(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(FakeServer())
        self.url = ["--url", self.server.url]

    def outcome(self, kind, *more, code=1, **wanted):
        out = figures(*self.url, "--requests", 2, "--max-tokens", kind, *more, code=code)
        self.assertEqual({k: v for k, v in out["outcomes"].items() if v}, wanted)
        return out

    def test_each_way_to_fail_has_its_name(self):
        self.assertEqual(self.outcome(2, stream_error=2)["errors"][0]["message"], "broke down")
        self.outcome(3, cut_off=2)
        self.outcome(4, "--timeout", 0.3, "--concurrency", 2, timed_out=2)
        self.outcome(5, stream_error=2)
        self.assertEqual(self.outcome(6, refused=2)["errors"], [{"outcome": "refused", "status": 429, "message": "too many", "count": 2}])
        self.assertEqual(self.outcome(7, http_error=2)["errors"][0]["status"], 400)
        self.outcome(9, stream_error=2)
        out = figures("--url", "http://127.0.0.1:9", "--requests", 2, code=1)
        self.assertEqual(out["outcomes"]["unreachable"], 2)

    def test_answers(self):
        out = self.outcome(1, code=0, answered=2)
        self.assertEqual((out["output_tokens"], out["tokens_counted_by"]), (2, "pieces"))
        out = self.outcome(8, code=0, answered=2)
        self.assertEqual((out["output_tokens"], out["tokens_counted_by"]), (6, "server"))
        self.outcome(10, "--concurrency", 1, code=0, answered=2)

    def test_an_open_loop_does_not_wait_for_the_server(self):
        # 40 answers of at least 100 ms at 100 per second: nearly all at once, and none late.
        out = figures(*self.url, "--requests", 40, "--rate", 100, "--max-tokens", 20)
        self.assertGreater(out["running_max"], 5)
        self.assertEqual(out["answered"], 40)
        self.assertGreater(out["tpot_ms"]["p50"], 1)
        # With room for two they wait in the client, and that is in their times.
        bound = figures(*self.url, "--requests", 40, "--rate", 100, "--max-tokens", 20, "--concurrency", 2)
        self.assertEqual(bound["running_max"], 2)
        self.assertGreater(bound["dispatch_lag_ms"]["max"], 500)
        self.assertGreater(bound["ttft_ms"]["p99"], 500)

    def test_conversations_go_on_with_the_answers(self):
        figures(*self.url, "--requests", 1, "--turns", 3, "--max-tokens", 1, "--input-tokens", 5, "--shared-prefix", 7,
                "--model", "m", "--api-key", "secret", "--body", '{"kvist":{"priority":3}}')
        paths, bodies, keys = zip(*self.server.bodies)
        self.assertEqual((set(paths), set(keys)), ({"/v1/chat/completions"}, {"Bearer secret"}))
        last = bodies[2]
        self.assertEqual([m["role"] for m in last["messages"]], ["system", "user", "assistant", "user", "assistant", "user"])
        self.assertEqual([last["messages"][2]["content"], last["model"], last["kvist"]], ["end", "m", {"priority": 3}])
        self.assertEqual(last["messages"][:4], bodies[1]["messages"])
        self.assertEqual(len(last["messages"][0]["content"].split()), 7)

    def test_tenants(self):
        out = figures(*self.url, "--tenant", "a=key-a:20", "--tenant", "b=key-b:60", "--seconds", 1, "--max-tokens", 1)
        a, b = out["tenants"]
        self.assertEqual((a["name"], b["name"]), ("a", "b"))
        self.assertGreater(b["requests"], a["requests"])
        self.assertEqual({key for _, _, key in self.server.bodies}, {"Bearer key-a", "Bearer key-b"})
        self.assertLess(out["fairness"]["jain_tokens"], 1)
        self.assertEqual(out["fairness"]["jain_good"], 1)

    def test_goodput(self):
        out = figures(*self.url, "--requests", 4, "--max-tokens", 20, "--slo-tpot-ms", 0.001)
        self.assertEqual((out["answered"], out["good"], out["goodput_per_s"]), (4, 0, 0))
        out = figures(*self.url, "--requests", 4, "--max-tokens", 20, "--slo-tpot-ms", 1000, "--slo-ttft-ms", 5000)
        self.assertEqual((out["good"], out["good_share"]), (4, 1))

    def test_ctrl_c_prints_what_there_is(self):
        process = subprocess.Popen([KVIST, "bench-serve", *self.url, "--concurrency", "2", "--requests", "100000", "--max-tokens",
                                    "11", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130)
        out = json.loads(out)
        self.assertTrue(out["interrupted"])
        self.assertGreater(out["answered"], 2)
        self.assertLess(out["duration_s"], 10)

    def test_wrong_usage(self):
        for arguments, text in ((["--ca-file", "x.pem"], "https://"), (["--url", "https://x", "--ca-file", "/none.pem"], "/none.pem"), (["--url", "nonsense"], "http://"), (["--tenant", "a"], "NAME=KEY"),
                                (["--tenant", "a=b:fast"], "rate"), (["--body", "[1]"], "--body"),
                                (["--token-ids", "9"], "completions")):
            with self.subTest(arguments):
                done = run(*arguments, code=1)
                self.assertEqual(done.stdout, "")
                self.assertIn(text, done.stderr)
        for arguments in (["--rate", "0"], ["--concurrency", "0"], ["--burstiness", "nan"], ["--trace", "/does/not/exist"], ["--speed", "2"],
                          ["--tenant", "a=b", "--api-key", "k"]):
            self.assertEqual(run(*arguments, code=2).stdout, "")


class Real(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process = subprocess.Popen([KVIST, "serve", MODEL, "--port", "0", "--kv-memory", "64MiB", "--json"],
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENV)
        cls.url = ["--url", json.loads(cls.process.stdout.readline())["url"]]

    @classmethod
    def tearDownClass(cls):
        cls.process.terminate()
        cls.process.communicate(timeout=60)

    def test_counts_are_the_servers(self):
        out = figures(*self.url, "--requests", 12, "--concurrency", 4, "--endpoint", "completions", "--token-ids", 900,
                      "--input-tokens", 40, "--output-tokens", 16, "--ignore-eos")
        self.assertEqual((out["requests"], out["answered"], out["prompt_tokens"], out["output_tokens"]), (12, 12, 480, 192))
        self.assertEqual((out["tokens_counted_by"], out["running_max"]), ("server", 4))
        self.assertLessEqual(out["ttft_ms"]["p99"], out["e2e_ms"]["p99"])
        self.assertGreater(out["itl_ms"]["mean"], 0)

    def test_later_turns_and_shared_prefixes_are_cached(self):
        out = figures(*self.url, "--requests", 3, "--concurrency", 1, "--turns", 3, "--shared-prefix", 100, "--output-tokens", 8,
                      "--input-tokens", 20)
        self.assertEqual(out["answered"], 9)
        self.assertGreater(out["cached_tokens"], out["prompt_tokens"] // 2)
        self.assertEqual(out["computed_tokens"], out["prompt_tokens"] - out["cached_tokens"])

    def test_report(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.html"
            run(*self.url, "--requests", 6, "--rate", 50, "--input-tokens", 20, "--output-tokens", 8, "--html", path,
                "--tenant", "<script>&=k", "--tenant", "b=k")
            page = path.read_text()
        self.assertNotIn("<script", page)
        self.assertIn("&lt;script&gt;&amp;", page)
        self.assertNotRegex(page, r"(src|href)=|url\(")
        svgs = [part.split("</svg>")[0] + "</svg>" for part in ("<svg" + p for p in page.split("<svg")[1:])]
        self.assertEqual(len(svgs), 7)
        for svg in svgs:
            root = xml.dom.minidom.parseString(svg).documentElement
            self.assertEqual(root.getAttribute("role"), "img")
            self.assertTrue(root.getAttribute("aria-label"))


if __name__ == "__main__":
    unittest.main()
