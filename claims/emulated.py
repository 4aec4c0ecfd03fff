"""What the emulated studies share: traces of equal requests, replays of them, and device files that differ in one figure."""
import json
import pathlib
import re
import subprocess
import sys
import tomllib


class Lab:
    """Runs kvist on traces of equal requests. Files go to `folder`, devices come from `devices`."""

    def __init__(self, kvist, devices, folder):
        self.kvist, self.devices, self.folder = kvist, pathlib.Path(devices), pathlib.Path(folder)

    def device(self, name):
        """@return the figures of devices/NAME.toml"""
        return tomllib.loads((self.devices / f"{name}.toml").read_text(encoding="utf-8"))

    def variant(self, name, key, value):
        """@return the path of a copy of devices/NAME.toml in which the one line `key = ...` says `value`"""
        text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", (self.devices / f"{name}.toml").read_text(encoding="utf-8"))
        if count != 1:
            sys.exit(f"devices/{name}.toml: {count} lines of {key}")
        path = self.folder / f"{name}-{key}.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def replay(self, device, model, requests, *flags):
        """@param requests  [(seconds, input tokens, output tokens)]  @return the JSON that kvist prints"""
        trace = self.folder / "trace.jsonl"
        trace.write_text("".join(json.dumps({"timestamp": 1e3 * at, "input_length": i, "output_length": o, "hash_ids": []}) + "\n" for at, i, o in requests))
        done = subprocess.run([self.kvist, "replay", "--json", "--devices", self.devices, "--device", device, "--model", model, "--trace", trace, *map(str, flags)],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return json.loads(done.stdout)
