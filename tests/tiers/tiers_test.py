#!/usr/bin/env python3
"""Keys and values in cold memory and on a drive, with the real program:  tiers_test.py KVIST [unittest options]"""
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "usage"))
import server  # noqa: E402

KVIST = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "kvist"
KILL_SECONDS = float(os.environ.get("KVIST_KILL_SECONDS", "15"))
WORDS = "the a boy girl named Ben Lily went to see big red dog cat tree house and was very happy one day park ball".split()


def text(seed, words=220):
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(words))


def complete(url, prompt, max_tokens=8, key=None, timeout=120, **own):
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "kvist": own}
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        answer = json.load(response)
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def metric(url, name):
    with urllib.request.urlopen(url + "/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{") or line.startswith(name + " "))


class TiersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "kv"

    def start(self, *arguments, disk=True, memory="32MiB", **options):
        store = ("--kv-disk", self.folder, "--kv-disk-size", "256MiB") if disk else ()
        process, url = server.start(KVIST, "--parallel", 4, "--kv-memory", memory, *store, *arguments, **options)
        self.addCleanup(self.end, process)
        return process, url

    def end(self, process):
        process.kill()  # Nothing when it has ended.
        process.wait()
        process.stdout.close()

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0)

    def state(self, url):
        with urllib.request.urlopen(url + "/kvist/state", timeout=30) as response:
            return json.load(response)

    def test_a_restart_reads_what_was_computed(self):
        process, url = self.start()
        drive = self.state(url)["tiers"][1]
        self.assertEqual((drive["blocks"]["total"], drive["blocks"]["cached"], drive["bytes_max"]), (None, 0, 2**28))
        first, cached = complete(url, text(1))
        self.assertEqual(cached, 0)
        self.stop(process)
        for file in self.folder.iterdir():
            self.assertEqual(file.stat().st_mode & 0o077, 0, file)
        self.assertEqual(self.folder.stat().st_mode & 0o077, 0)
        process, url = self.start()
        again, cached = complete(url, text(1))
        self.assertEqual(again, first)
        self.assertGreater(cached, 200)
        self.assertEqual(cached % 16, 0)
        self.assertEqual(metric(url, "kvist_tier_restored_blocks_total"), cached // 16)
        self.assertGreater(metric(url, "kvist_tier_read_bytes_total"), 0)
        tiers = self.state(url)["tiers"]
        self.assertEqual([tier["name"] for tier in tiers], ["hot", "drive"])
        self.assertEqual(tiers[1]["state"], "writing")
        self.assertGreaterEqual(tiers[1]["blocks"]["cached"], cached // 16)
        self.stop(process)
        process, url = self.start("--kv-type", "q8")  # Other bytes: a miss.
        self.assertEqual(complete(url, text(1))[1], 0)

    def test_cold_memory_gives_back_what_hot_memory_had_to_give_up(self):
        prompts = [text(10 + i) for i in range(6)]
        _, url = self.start(disk=False)
        expected = [complete(url, prompt)[0] for prompt in prompts]
        for disk in [False, True]:
            process, url = self.start("--kv-cold-memory", "64MiB", disk=disk, memory="4MiB")
            for _ in range(3):
                answers = [complete(url, prompt) for prompt in prompts]
                self.assertEqual([answer for answer, _ in answers], expected)
            self.assertGreater(min(cached for _, cached in answers), 200)
            state = self.state(url)
            self.assertEqual([tier["name"] for tier in state["tiers"]], ["hot", "cold_memory"] + ["drive"] * disk)
            cold = state["tiers"][1]
            self.assertTrue(cold["lossless"])
            self.assertGreater(cold["since_start"]["read_blocks"], 20)
            self.assertEqual(cold["since_start"]["missing_blocks"], 0)
            self.stop(process)
        process, url = self.start()  # What cold memory alone had was written at the end.
        self.assertEqual(complete(url, prompts[0])[0], expected[0])
        self.assertGreater(metric(url, "kvist_tier_restored_blocks_total"), 10)

    def test_blocks_of_8_bits_are_told_apart_from_exact_ones(self):
        process, url = self.start()
        first, _ = complete(url, text(20))
        self.stop(process)
        process, url = self.start("--kv-cold-memory", "8MiB", "--kv-cold-codec", "int8")
        self.assertEqual(complete(url, text(20))[1], 0)
        cold = self.state(url)["tiers"][1]
        self.assertEqual((cold["codec"], cold["lossless"]), ("int8", False))
        self.stop(process)
        process, url = self.start()
        again, cached = complete(url, text(20))
        self.assertEqual(again, first)
        self.assertGreater(cached, 200)

    def test_a_store_larger_than_its_drive_is_warned_of(self):
        for size, warned in ("256MiB", False), ("4096TiB", True):
            with self.subTest(size), open(self.folder.parent / "log", "w+") as log:
                process, url = server.start(KVIST, "--kv-memory", "8MiB", "--kv-disk", self.folder, "--kv-disk-size", size, stderr=log)
                self.addCleanup(self.end, process)
                self.stop(process)
                log.seek(0)
                lines = [line for line in log if "--kv-disk-size" in line]
                self.assertEqual(len(lines), warned, lines)
        self.assertRegex(lines[0], rf"warn.* --kv-disk-size 4.0 PiB: the drive of {self.folder} has .* free, of which 1.0 GiB stay free for others")

    def test_what_came_back_long_ago_is_told_from_what_is_read(self):
        process, url = self.start("--kv-admission", "through")
        complete(url, text(30))
        self.stop(process)
        process, url = self.start()
        complete(url, text(30))

        def explain():
            run = subprocess.run([KVIST, "explain", "--url", url], capture_output=True, text=True, timeout=60)
            return run.stdout

        self.assertRegex(explain(), r"reused +\d+ tokens read from the drive\n")
        time.sleep(0.3)
        complete(url, text(30))
        self.assertRegex(explain(), r"reused +\d+ tokens in memory, read from the drive [\d.]+ m?s before\n")

    def test_a_second_server_is_refused_or_only_reads(self):
        process, url = self.start("--kv-admission", "through")
        first, _ = complete(url, text(2))
        time.sleep(0.5)
        other = subprocess.run([KVIST, "serve", server.MODEL, "--port", "0", "--kv-disk", self.folder, "--kv-disk-size", "256MiB"],
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(other.returncode, 1)
        self.assertIn("another process writes to this store; --kv-disk-read-only", other.stderr)
        reader, other_url = self.start("--kv-disk-read-only")
        again, cached = complete(other_url, text(2))
        self.assertEqual(again, first)
        self.assertGreater(cached, 200)
        self.stop(reader)
        self.stop(process)

    def test_a_tenant_is_forgotten_for_good(self):
        process, url = self.start("--api-key", "secret")
        complete(url, text(3), key="secret")
        self.stop(process)
        purge = subprocess.run([KVIST, "store", "purge", self.folder, "--tenant", "default", "--json"],
                               capture_output=True, text=True, timeout=60)
        self.assertGreater(json.loads(purge.stdout)["purged"], 10)
        self.assertEqual(json.loads(purge.stdout)["blocks"], 0)
        process, url = self.start("--api-key", "secret")
        self.assertEqual(complete(url, text(3), key="secret")[1], 0)

    def test_what_is_to_be_forgotten_is_forgotten_below_and_after_a_restart(self):
        soon, now = ({"priority": "normal", "seconds": seconds, "then": "forget"} for seconds in (1, 0))
        process, url = self.start("--kv-admission", "through", "--kv-cold-memory", "64MiB", memory="4MiB")
        for seed in range(60, 66):  # More than memory holds: they are in cold memory and on the drive.
            complete(url, text(seed))
        self.assertGreater(complete(url, text(60))[1], 200)
        complete(url, text(60), retain=soon)
        complete(url, text(70), retain=soon)
        time.sleep(1.1)
        self.assertGreater(metric(url, "kvist_tier_forgotten_blocks_total"), 20)
        for _ in range(2):
            self.assertLess(complete(url, text(60), retain=now)[1], 16)
            self.assertLess(complete(url, text(70), retain=now)[1], 16)
            self.assertGreater(complete(url, text(61))[1], 200)
            self.stop(process)
            process, url = self.start("--kv-cold-memory", "64MiB")

    def test_what_tenants_hold_of_tiers_is_in_the_usage_database(self):
        usage = self.folder.parent / "usage.db"
        begin = time.time()
        process, url = self.start("--api-key", "secret", "--usage-db", usage, "--kv-cold-memory", "64MiB", "--kv-admission", "through", memory="4MiB")
        for seed in range(80, 86):
            complete(url, text(seed), key="secret")
        time.sleep(1)
        self.stop(process)
        seconds = time.time() - begin
        stats = json.loads(subprocess.run([KVIST, "store", "stats", self.folder, "--json"], capture_output=True, text=True, timeout=60).stdout.splitlines()[0])
        prices = self.folder.parent / "prices.toml"
        prices.write_text("[kv]\ncold_memory_per_gib_hour = 3600000\ndrive_per_gib_hour = 7200000\n")
        cost = subprocess.run([KVIST, "cost", "--usage-db", usage, "--prices", prices, "--json"], capture_output=True, text=True, timeout=60)
        row, = json.loads(cost.stdout)["data"]
        self.assertEqual(row["tenant"], "default")
        held = row["kv_byte_seconds"]
        self.assertGreater(held["cold_memory"], 2**20)
        self.assertGreater(held["drive"], 2**20)
        self.assertLess(held["drive"], stats["record_bytes"] * seconds)
        names = json.loads(subprocess.run([KVIST, "store", "stats", self.folder, "--usage-db", usage, "--json"], capture_output=True, text=True, timeout=60).stdout)
        self.assertEqual({part["tenant_name"] for part in names["parts"]}, {"default"})
        listed = subprocess.run([KVIST, "store", "ls", self.folder], capture_output=True, text=True, timeout=60).stdout
        self.assertIn(" tenant default ", listed)
        self.assertAlmostEqual(row["cost"] * 2**30 / 1000, held["cold_memory"] + 2 * held["drive"], delta=row["cost"] * 2**30 / 1000 * 1e-6)

    def test_a_drive_that_takes_no_more_is_told_once_and_answers_go_on(self):
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        with open(self.folder.parent / "log", "w+") as log:
            process, url = self.start("--kv-admission", "through", stderr=log, preexec_fn=small_files)
            for seed in range(8):
                complete(url, text(40 + seed))
            for _ in range(100):
                if metric(url, "kvist_tier_writing") == 0:
                    break
                time.sleep(0.05)
            self.assertEqual(metric(url, "kvist_tier_writing"), 0)
            time.sleep(1.5)
            complete(url, text(50))
            self.stop(process)
            log.seek(0)
            lines = [line for line in log if "KV on drive" in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(f"({self.folder}): writing before, read-only now: ", lines[0])
        self.assertIn("File too large", lines[0])

    def test_a_folder_that_is_removed_is_told_once_and_answers_go_on(self):
        with open(self.folder.parent / "log", "w+") as log:
            process, url = self.start("--kv-admission", "through", stderr=log)
            first, _ = complete(url, text(60))
            shutil.rmtree(self.folder)
            for _ in range(200):  # Nobody asks for anything meanwhile.
                if metric(url, "kvist_tier_writing") == 0:
                    break
                time.sleep(0.05)
            drive = self.state(url)["tiers"][1]
            self.assertEqual(drive["state"], "disabled")
            self.assertIn("removed", drive["reason"])
            self.assertEqual(complete(url, text(60))[0], first)
            time.sleep(1.5)
            self.stop(process)
            log.seek(0)
            lines = [line for line in log if "KV on drive" in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(f"({self.folder}): writing before, disabled now: {self.folder}: the folder was removed", lines[0])

    def test_flags_that_do_not_fit_are_told(self):
        for flags, message in [(("--kv-disk-size", "1GiB"), "--kv-disk-size needs --kv-disk"),
                               (("--kv-disk", self.folder, "--kv-disk-size", "many"), "--kv-disk-size"),
                               (("--kv-disk", self.folder, "--kv-disk-size", "64KiB"), "fewer than 64 blocks"),
                               (("--kv-disk", self.folder, "--no-cache"), "--no-cache"),
                               (("--kv-cold-memory", "some"), "--kv-cold-memory"),
                               (("--kv-cold-memory", "1KiB"), "holds no block"),
                               (("--kv-cold-memory", "4096GiB"), "does not fit"),
                               (("--kv-cold-memory", "8MiB", "--no-cache"), "--no-cache"),
                               (("--kv-cold-codec", "int8"), "--kv-cold-codec needs --kv-cold-memory"),
                               (("--kv-cold-memory", "8MiB", "--kv-cold-codec", "int8", "--kv-type", "q8"), "q8 already"),
                               (("--kv-disk", self.folder / "none", "--kv-disk-read-only"), str(self.folder))]:
            run = subprocess.run([KVIST, "serve", server.MODEL, "--port", "0", *map(str, flags)],
                                 capture_output=True, text=True, timeout=60)
            self.assertNotEqual(run.returncode, 0, flags)
            self.assertIn(message, run.stderr)

    def test_after_kills_at_random_moments_every_answer_is_right(self):
        prompts = [text(100 + i, 60 + 25 * i) for i in range(8)]
        process, url = self.start(disk=False)
        expected = {prompt: complete(url, prompt)[0] for prompt in prompts}
        self.end(process)
        draw = random.Random(5)
        end = time.monotonic() + KILL_SECONDS
        wrong, restored, lives, answers = [], 0, 0, 0

        def ask(url, prompt):
            nonlocal answers
            try:
                answer, _ = complete(url, prompt, timeout=30)
            except (OSError, ValueError):
                return  # It was killed.
            answers += 1
            if answer != expected[prompt]:
                wrong.append((prompt, answer))

        while time.monotonic() < end:
            lives += 1
            admission = draw.choice(["through", "all", "a5"])
            memory = draw.choice(["4MiB", "8MiB", "32MiB"])
            cold = draw.choice([(), ("--kv-cold-memory", "4MiB"), ("--kv-cold-memory", "64MiB")])
            process, url = self.start("--kv-admission", admission, *cold, memory=memory)
            deadline = time.monotonic() + draw.uniform(0.05, 1.5)
            while time.monotonic() < deadline:
                threads = [threading.Thread(target=ask, args=(url, draw.choice(prompts))) for _ in range(4)]
                for thread in threads:
                    thread.start()
                killer = draw.random() < 0.3
                if killer:
                    time.sleep(draw.uniform(0, 0.2))
                    process.kill()
                for thread in threads:
                    thread.join()
                if killer:
                    break
                restored += metric(url, "kvist_tier_restored_blocks_total") > 0
            if draw.random() < 0.3 and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                time.sleep(draw.uniform(0, 0.1))
            self.end(process)
        self.assertEqual(wrong, [])
        self.assertGreater(restored, 0)
        self.assertGreater(answers, 10)
        verify = subprocess.run([KVIST, "store", "verify", self.folder], capture_output=True, text=True, timeout=60)
        self.assertEqual(verify.returncode, 0, verify.stdout)


if __name__ == "__main__":
    unittest.main()
