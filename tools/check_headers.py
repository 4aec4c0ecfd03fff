#!/usr/bin/env python3
"""Checks that every header of src/ compiles by itself. Usage: check_headers.py COMPILER BUILD_DIR

Takes the include paths and definitions from the build's compile_commands.json. Most of the time would go into a few headers
of libraries. They are compiled once, and put before those headers that include them anyway, so nothing missing is hidden.
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What is compiled once, dearest first.
COMMON = [
    ["absl/status/statusor.h", "boost/json.hpp", "CLI/CLI.hpp"],
    ["absl/status/statusor.h", "boost/json.hpp"],
    ["absl/status/statusor.h"],
    ["string", "vector"],
]


def flags_of(build_dir):
    """Union of include paths and definitions over all targets."""
    flags = {}
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        for i, word in enumerate(words):
            if word.startswith(("-I", "-D")):
                flags[word] = None
            elif word == "-isystem":
                flags[f"-isystem{words[i + 1]}"] = None
    return list(flags)


@functools.cache
def included(header):
    """What a header of ours includes, directly or through others of ours, whatever the preprocessor decides."""
    text = (ROOT / "src" / header).read_text()
    found = set(re.findall(r'^#include [<"]([^>"]+)[>"]', text, re.M))
    # A condition may leave an include out, so those of such a header do not count.
    if re.search(r"^#\s*if", text, re.M):
        return frozenset()
    return frozenset(found.union(*(included(name) for name in found if (ROOT / "src" / name).is_file())))


class Checker:
    def __init__(self, compiler, flags, folder):
        self.command = [compiler, "-std=c++20", "-march=x86-64-v3", "-Wall", "-Wextra", *flags]
        self.folder = folder

    def precompile(self, number):
        path = self.folder / f"common{number}.h"
        path.write_text("".join(f"#include <{name}>\n" for name in COMMON[number]))
        subprocess.run([*self.command, "-x", "c++-header", path, "-o", f"{path}.gch"], check=True)

    def check(self, header):
        number = next((i for i, names in enumerate(COMMON) if included(header).issuperset(names)), None)
        before = [] if number is None else ["-Winvalid-pch", "-include", self.folder / f"common{number}.h"]
        text = f'#include "{header}"\n#include "{header}"\n'
        result = subprocess.run([*self.command, "-fsyntax-only", "-x", "c++", *before, "-"], input=text, text=True, capture_output=True)
        return header, result.returncode, result.stderr


def main():
    compiler, build_dir = sys.argv[1], pathlib.Path(sys.argv[2])
    headers = [p.relative_to(ROOT / "src").as_posix() for p in sorted((ROOT / "src").rglob("*.h"))]
    failed = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        checker = Checker(compiler, flags_of(build_dir), pathlib.Path(folder))
        list(pool.map(checker.precompile, range(len(COMMON))))
        for header, code, stderr in pool.map(checker.check, headers):
            if code:
                print(f"{header} does not compile by itself:\n{stderr}")
                failed += 1
    print(f"{len(headers)} headers, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
