#!/usr/bin/env python3
"""Checks that every header of src/ compiles by itself. Usage: check_headers.py COMPILER BUILD_DIR

Takes the include paths and definitions from the build's compile_commands.json.
"""
import concurrent.futures
import json
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


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


def compile_header(compiler, flags, header):
    command = [compiler, "-std=c++20", "-march=x86-64-v3", "-fsyntax-only", "-Wall", "-Wextra", "-x", "c++", *flags, "-"]
    text = f'#include "{header}"\n#include "{header}"\n'
    result = subprocess.run(command, input=text, text=True, capture_output=True)
    return header, result.returncode, result.stderr


def main():
    compiler, build_dir = sys.argv[1], pathlib.Path(sys.argv[2])
    flags = flags_of(build_dir)
    headers = [p.relative_to(ROOT / "src").as_posix() for p in sorted((ROOT / "src").rglob("*.h"))]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for header, code, stderr in pool.map(lambda h: compile_header(compiler, flags, h), headers):
            if code:
                print(f"{header} does not compile by itself:\n{stderr}")
                failed += 1
    print(f"{len(headers)} headers, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
