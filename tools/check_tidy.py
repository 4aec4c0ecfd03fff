#!/usr/bin/env python3
"""Runs clang-tidy over src/.  check_tidy.py CLANG_TIDY BUILD_DIR [--all] [JOBS]

A file that was clean is looked at again only when something changed that its result depends on: the source, a header it
includes (as Ninja recorded them in BUILD_DIR, system headers too), its compile command, .clang-tidy or clang-tidy itself.
The keys of clean files are stamps in BUILD_DIR/tidy/. --all ignores the stamps. A whole run takes an hour or more on two cores.
Tests, benchmarks and fuzzers go without the path-sensitive clang-analyzer: GoogleTest's macros make it take minutes a file.
"""
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import re
import subprocess
import sys

NO_ANALYZER = re.compile(r"_(test|testutil|bench|fuzz)\.cc$")
ROOT = pathlib.Path(__file__).resolve().parent.parent


@functools.cache
def digest(path):
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "absent"


def recorded_headers(build_dir):
    """Object file -> what its last compilation read."""
    headers, target = {}, None
    for line in subprocess.run(["ninja", "-C", build_dir, "-t", "deps"], capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith(" "):
            headers[target].append(line.strip())
        elif ": #deps" in line:
            target = line.split(": #deps")[0]
            headers[target] = []
    return headers


def key_of(common, command, source, headers):
    text = hashlib.sha256(f"{common}\n{command}\n".encode())
    for path in [source, *sorted(headers)]:
        text.update(f"{path} {digest(path)}\n".encode())
    return text.hexdigest()


def main():
    arguments = [a for a in sys.argv[1:] if a != "--all"]
    clang_tidy, build_dir = arguments[0], pathlib.Path(arguments[1]).resolve()
    jobs = int(arguments[2]) if len(arguments) > 2 else 2
    stamps = build_dir / "tidy"
    stamps.mkdir(exist_ok=True)
    version = subprocess.run([clang_tidy, "--version"], capture_output=True, text=True, check=True).stdout
    common = version + digest(ROOT / ".clang-tidy")
    commands = {e["file"]: e for e in json.loads((build_dir / "compile_commands.json").read_text())}
    recorded = recorded_headers(build_dir)
    # For sources that this build does not compile, fuzzers and benchmarks: any header of ours may count.
    all_headers = sorted((ROOT / "src").rglob("*.h")) + sorted((ROOT / "src").rglob("*.inc"))
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "src/*.cc"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    names.sort(key=lambda name: bool(NO_ANALYZER.search(name)))
    wanted = []
    for name in names:
        source = ROOT / name
        if not source.exists():
            continue
        entry = commands.get(str(source), {})
        words = entry.get("command", "").split()
        headers = recorded.get(words[words.index("-o") + 1]) if "-o" in words else None
        headers = [build_dir / h for h in headers] if headers else all_headers
        key = key_of(common, entry.get("command"), source, headers)
        stamp = stamps / name.replace("/", "__")
        if "--all" in sys.argv or not stamp.exists() or stamp.read_text() != key:
            wanted.append((name, stamp, key))

    def tidy(item):
        name, stamp, key = item
        checks = ["--checks=-clang-analyzer-*"] if NO_ANALYZER.search(name) else []
        result = subprocess.run([clang_tidy, "-p", build_dir, "--quiet", *checks, ROOT / name], capture_output=True, text=True)
        if result.returncode == 0:
            stamp.write_text(key)
            return True
        stamp.unlink(missing_ok=True)
        print(result.stdout, result.stderr, sep="", flush=True)
        return False

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        failed = list(pool.map(tidy, wanted)).count(False)
    print(f"clang-tidy: {len(names)} files, {len(names) - len(wanted)} unchanged since they were clean, {failed} of the others with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
