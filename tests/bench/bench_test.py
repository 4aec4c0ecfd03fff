#!/usr/bin/env python3
"""What kvist bench and kvist synth print:  bench_test.py KVIST [unittest options]"""
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

KVIST = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "kvist"
MODEL = str(pathlib.Path(__file__).resolve().parents[2] / "models" / "default-q8_0.gguf")


def kvist(*arguments):
    return subprocess.run([KVIST, *map(str, arguments)], capture_output=True, text=True, timeout=200)


class Bench(unittest.TestCase):
    def test_json_has_the_promised_fields(self):
        with tempfile.TemporaryDirectory() as folder:
            plot = pathlib.Path(folder) / "roofline.svg"
            run = kvist("bench", "-p", "16,48", "-n", "2", "--batch", "1,3", "--depth", "0,64", "-r", "2", MODEL, "--json",
                        "--plot", plot)
            self.assertEqual(run.returncode, 0, run.stderr)
            picture = xml.dom.minidom.parse(str(plot))
        lines = {line["name"]: line for line in map(json.loads, run.stdout.splitlines())}
        names = [f"{name}{depth}" for depth in ("", "@d64") for name in ("pp16", "pp48", "tg2", "tg2@b3")]
        self.assertEqual(list(lines), names + ["load", "memory", "arithmetic"])
        for name, line in lines.items():
            self.assertEqual((line["model"], line["type"]), ("default-q8_0", "q8_0"))
            self.assertGreater(line["threads"], 0)
            self.assertIn("isa", line)
            if line["kind"] not in ("prompt", "decode"):
                continue
            speed = line["tokens_per_s"]
            self.assertLessEqual(speed["min"], speed["p90"])
            self.assertLessEqual(speed["p90"], speed["median"])
            self.assertLessEqual(speed["median"], speed["max"])
            self.assertGreater(speed["min"], 0)
            self.assertEqual(line["repetitions"], 2)
            self.assertIn(line["limit"], ("memory", "arithmetic"))
            for field in ("spread", "share", "bytes", "multiply_adds", "tokens", "batch"):
                self.assertGreaterEqual(line[field], 0)
            self.assertGreater(line["first_token_ms" if line["kind"] == "prompt" else "step_ms"], 0)
        load = lines["load"]
        self.assertEqual((load["weights"], load["cache_path"], load["first_prompt_tokens"]), ("packed", "", 16))
        self.assertGreater(load["seconds"], load["open_s"])
        self.assertGreater(load["seconds"], load["tokenizer_s"])
        self.assertGreater(load["seconds"], load["weights_s"])
        self.assertGreater(load["first_token_s"], load["first_prompt_s"])
        self.assertGreater(load["packed_bytes"], 0)
        self.assertGreater(load["resident_bytes"]["anonymous"], load["packed_bytes"])
        self.assertGreater(lines["memory"]["bytes_per_s"], 0)
        self.assertGreater(lines["arithmetic"]["multiply_adds_per_s"], 0)
        self.assertEqual(len(picture.getElementsByTagName("circle")), len(names))

    def test_second_start_reads_the_packed_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            model, cache = pathlib.Path(folder) / "model.gguf", pathlib.Path(folder) / "cache"
            self.assertEqual(kvist("synth", "smollm2-135m", "--type", "q8_0", "--layers", "15", "-o", model).returncode, 0)

            def load(*flags):
                run = kvist("bench", model, "-p", "0", "-n", "1", "-r", "1", "--json", *flags)
                self.assertEqual(run.returncode, 0, run.stderr)
                return next(line for line in map(json.loads, run.stdout.splitlines()) if line["name"] == "load")

            self.assertEqual(load("--packed-cache", "off")["cache_path"], "")
            first = load("--packed-cache", cache)
            self.assertEqual((first["weights"], first["cache"]), ("packed", "written"))
            self.assertEqual(os.listdir(cache), [os.path.basename(first["cache_path"])])
            second = load("--packed-cache", cache)
            self.assertEqual((second["weights"], second["cache"]), ("cached", ""))
            # What cannot be written is told and no error.
            self.assertIn(str(model), load("--packed-cache", model / "below-a-file")["cache"])

    def test_experts_are_read_when_a_token_needs_them(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "experts.gguf"
            synth = kvist("synth", "qwen3moe-small", "--type", "q8_0", "--layers", "1", "--vocab", "600", "--experts", "8",
                          "-o", path, "--json")
            self.assertEqual(synth.returncode, 0, synth.stderr)
            shown = json.loads(kvist("inspect", path, "--json").stdout)
            run = kvist("bench", path, "-p", "0", "-n", "1", "--batch", "1,16", "-r", "1", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual((shown["expert_count"], shown["expert_used_count"]), (8, 4))
        expert = 3 * 1024 * 768  # Elements, Q8_0: 34 bytes of 32.
        self.assertEqual(shown["active_parameters"], shown["parameters"] - 4 * expert)
        one, many = (line["bytes"] for line in map(json.loads, run.stdout.splitlines()) if line["name"].startswith("tg1"))
        self.assertAlmostEqual((many - one) / (expert * 34 / 32), 4, delta=0.1)

    def test_nothing_to_measure_is_wrong_usage(self):
        run = kvist("bench", MODEL, "-p", "0", "-n", "0")
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn("-p 0 and -n 0", run.stderr)

    def test_ctrl_c(self):
        process = subprocess.Popen([KVIST, "bench", MODEL, "-p", "4096", "-r", "1000"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (130, ""))


class Synth(unittest.TestCase):
    def test_writes_and_says_what(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.gguf"
            run = kvist("synth", "qwen3-0.6b", "--type", "q4_k_m", "--layers", "1", "--vocab", "600", "-o", path, "--json")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(json.loads(run.stdout)["bytes"], path.stat().st_size)
            self.assertEqual([entry.name for entry in pathlib.Path(folder).iterdir()], ["m.gguf"])

    def test_list_and_errors(self):
        shapes = [json.loads(line)["name"] for line in kvist("synth", "--list", "--json").stdout.splitlines()]
        self.assertIn("llama-3.2-1b", shapes)
        for arguments in (["synth"], ["synth", "no-shape"], ["synth", shapes[0], "--type", "q9"]):
            run = kvist(*arguments)
            self.assertEqual((run.returncode, run.stdout), (1, ""))
            self.assertIn("kvist synth: ", run.stderr)


if __name__ == "__main__":
    unittest.main()
