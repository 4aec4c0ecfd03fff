#!/usr/bin/env python3
"""kvist batch: alone, at a server, killed and taken up again:  batch_test.py KVIST [unittest options]"""
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

KVIST = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "kvist"
MODEL = str(pathlib.Path(__file__).resolve().parents[2] / "models" / "default-q8_0.gguf")
ENV = {k: v for k, v in os.environ.items() if not k.startswith("KVIST_")}
ALONE = ["--model", MODEL, "--kv-memory", "64MiB"]
FACTS = "The purple key opens the shiny suitcase. The teal card opens the small door. "


def request(custom_id, url="/v1/completions", **body):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def some_requests(count, tokens=12):
    return [request(f"r{i}", prompt=FACTS * (i % 3) + f"Story {i}. Once upon a time", max_tokens=tokens, temperature=0, ignore_eos=True)
            for i in range(count)]


class BatchCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.inp, self.out = self.folder / "in.jsonl", self.folder / "out.jsonl"

    def write(self, lines):
        self.inp.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))

    def batch(self, *arguments, code=0):
        done = subprocess.run([KVIST, "batch", self.inp, self.out, "--json", *map(str, arguments)], capture_output=True, text=True,
                              timeout=200, env=ENV)
        self.assertEqual(done.returncode, code, done.stderr)
        self.stderr = done.stderr
        return json.loads(done.stdout) if done.stdout else None

    def lines(self):
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    def texts(self):
        return {line["custom_id"]: line["response"]["body"]["choices"][0]["text"] for line in self.lines()}

    def serve(self):
        process = subprocess.Popen([KVIST, "serve", MODEL, "--port", "0", "--kv-memory", "64MiB", "--json", "--api-key", "k"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENV)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return json.loads(process.stdout.readline())["url"]


class Alone(BatchCase):
    def test_answers_are_those_of_single_requests(self):
        requests = some_requests(12) + [request("chat", "/v1/chat/completions", messages=[{"role": "user", "content": "hello"}],
                                                max_tokens=8, temperature=0)]
        self.write(requests)
        url = self.serve()
        single = {}
        for one in requests:
            post = urllib.request.Request(url + one["url"], json.dumps(one["body"]).encode(),
                                          {"Content-Type": "application/json", "Authorization": "Bearer k"})
            choice = json.load(urllib.request.urlopen(post))["choices"][0]
            single[one["custom_id"]] = choice["text"] if "text" in choice else choice["message"]["content"]
        for where in (["--url", url, "--api-key", "k"], ALONE):
            self.out.unlink(missing_ok=True)
            summary = self.batch(*where)
            self.assertEqual((summary["answered"], summary["failed"], summary["finished"]), (13, 0, True))
            self.assertGreater(summary["cached_tokens"], 0)
            answers = {}
            for line in self.lines():
                self.assertEqual((line["response"]["status_code"], line["error"]), (200, None))
                choice = line["response"]["body"]["choices"][0]
                answers[line["custom_id"]] = choice["text"] if "text" in choice else choice["message"]["content"]
            self.assertEqual(answers, single)

    def test_bad_lines_and_refused_requests_stop_nothing(self):
        self.write([request("good", prompt="a", max_tokens=2), "{nonsense", request("bad", prompt=3), request("good", prompt="b"),
                    request("elsewhere", "/v1/nowhere")])
        summary = self.batch(*ALONE)
        self.assertEqual((summary["answered"], summary["failed"], summary["invalid_lines"]), (1, 2, 2))
        self.assertIn("line 2: ", self.stderr)
        lines = self.lines()
        self.assertEqual(sorted(line["error"]["line"] for line in lines if line["error"]), [2, 4])
        status = {line["custom_id"]: line["response"]["status_code"] for line in lines if line["response"]}
        self.assertEqual(status, {"good": 200, "bad": 400, "elsewhere": 404})
        before = self.out.read_text()
        again = self.batch(*ALONE)
        self.assertEqual((again["answered"], again["finished_before"], again["invalid_lines"]), (0, 3, 2))
        self.assertEqual(self.out.read_text(), before)

    def test_killed_in_the_middle_it_goes_on(self):
        self.write(some_requests(150, tokens=60))
        command = [KVIST, "batch", self.inp, self.out, *ALONE, "--concurrency", "2"]
        for wanted in (5, 15):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENV)
            end = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < end:
                if self.out.exists() and self.out.read_bytes().count(b"\n") >= wanted:
                    break
                time.sleep(0.01)
            process.kill()
            process.communicate()
            self.assertEqual(process.returncode, -signal.SIGKILL)
        whole = self.out.read_bytes().count(b"\n")
        with self.out.open("ab") as file:  # As if the system had taken a part of the next line.
            file.write(b'{"id":"batch_req_12')
        summary = self.batch(*ALONE)
        self.assertIn("done again", self.stderr)
        self.assertEqual((summary["finished_before"], summary["answered"]), (whole, 150 - whole))
        self.assertEqual(len(self.lines()), 150)
        texts = self.texts()
        self.out.unlink()
        self.batch(*ALONE)
        self.assertEqual(self.texts(), texts)

    def test_ctrl_c_leaves_what_can_go_on(self):
        self.write(some_requests(500, tokens=100))
        process = subprocess.Popen([KVIST, "batch", self.inp, self.out, *ALONE, "--json"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=ENV)
        while not self.out.exists() or not self.out.stat().st_size:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("again to go on", err)
        self.assertFalse(json.loads(out)["finished"])
        self.assertEqual(len(self.lines()), json.loads(out)["answered"])

    def test_other_files_and_servers(self):
        self.write(some_requests(1))
        self.out.write_text("notes\n")
        self.batch(*ALONE, code=1)
        self.assertEqual(self.out.read_text(), "notes\n")
        self.out = self.inp
        self.batch(*ALONE, code=1)
        self.out = self.folder / "new.jsonl"
        self.batch("--url", "http://127.0.0.1:9", code=1)
        self.assertEqual(self.out.read_text(), "")
        self.batch("--url", "https://127.0.0.1:9", code=1)


class Moody(http.server.BaseHTTPRequestHandler):
    """Refuses each request once, then cuts the connection, then answers."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen[body] = self.server.seen.get(body, 0) + 1
        if self.server.seen[body] == 2:
            self.close_connection = True
            return
        first = self.server.seen[body] == 1
        data = b'{"error":{"message":"full"}}' if first else b'{"id":"x","choices":[],"usage":{"completion_tokens":2}}'
        self.send_response(429 if first else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Patience(BatchCase):
    def test_refusals_and_cuts_are_asked_again(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Moody)
        server.seen = {}
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.write(some_requests(3))
        summary = self.batch("--url", f"http://127.0.0.1:{server.server_port}")
        self.assertEqual((summary["answered"], summary["failed"], summary["output_tokens"]), (3, 0, 6))
        self.assertGreaterEqual(summary["retries"], 3)  # A kept connection that is gone is replaced without a pause.
        self.assertEqual(set(server.seen.values()), {3})
        self.assertEqual({json.loads(body)["kvist"]["priority"] for body in server.seen}, {255})
        self.out.unlink()
        server.seen = {}
        self.batch("--url", f"http://127.0.0.1:{server.server_port}", "--plain")
        self.assertNotIn("kvist", json.loads(next(iter(server.seen))))


if __name__ == "__main__":
    unittest.main()
