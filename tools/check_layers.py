#!/usr/bin/env python3
"""Checks that every folder of src/ includes only from rows below its own (tools/layers.txt).

Sources may include what stands in a lower row or in their own folder. Tests, fuzzers, benchmarks and test utilities may
include anything below row 8. OS headers belong to platform/ (kernels/ may use intrinsics). Exit 1 with one line per fault.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
OS_HEADER = re.compile(r'^(sys/|linux/|netinet/|arpa/|unistd\.h|fcntl\.h|sched\.h|pthread\.h|dirent\.h|poll\.h|termios\.h)')
TEST = re.compile(r'_(test|fuzz|bench|testutil)\.(cc|h)$')
TEST_ROW = 8


def read_rows():
    rows = {}
    for line in (ROOT / "tools" / "layers.txt").read_text().splitlines():
        line = line.split("#")[0].split()
        if line:
            for folder in line[1:]:
                rows[folder] = int(line[0])
    return rows


def faults_of(path, rows):
    folder = path.relative_to(ROOT / "src").parts[0]
    if folder not in rows:
        yield 0, f"folder {folder} has no row in tools/layers.txt"
        return
    is_test = bool(TEST.search(path.name))
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, target = match.groups()
        if kind == "<":
            if OS_HEADER.match(target) and folder != "platform" and not is_test:
                yield number, f"{target} is an OS header: only platform/ includes those"
            continue
        first = target.split("/")[0]
        if first == folder or first not in rows:
            continue
        limit = max(rows[folder], TEST_ROW) if is_test else rows[folder]
        if rows[first] >= limit:
            yield number, f"{folder} (row {rows[folder]}) includes {target} (row {rows[first]})"


def main():
    rows = read_rows()
    count = 0
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in (".h", ".cc", ".inc"):
            for number, text in faults_of(path, rows):
                print(f"{path.relative_to(ROOT)}:{number}: {text}")
                count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
