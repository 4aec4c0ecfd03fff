#!/usr/bin/env python3
"""House rules with a ratchet: length of files and functions, headers that open with @file, no abandoned markers."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80
MARKERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def function_lengths(lines):
    """(first line, length) of each top-level brace block that starts a function: a closing brace in column 0."""
    start = None
    for number, line in enumerate(lines, 1):
        if re.match(r"^[A-Za-z].*\)[^;]*\{$", line) and not line.startswith(("namespace", "struct", "class", "enum", "union")):
            start = number
        elif line.startswith("}") and start is not None:
            yield start, number - start + 1
            start = None


def main():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "src"], cwd=ROOT, capture_output=True, text=True)
    faults = []
    for name in names.stdout.split():
        path = ROOT / name
        if path.suffix not in (".cc", ".h", ".inc") or not path.exists():
            continue
        lines = path.read_text().splitlines()
        if len(lines) > FILE_LINES_MAX:
            faults.append(f"{name}: {len(lines)} lines, at most {FILE_LINES_MAX}")
        if path.suffix == ".h" and "@file" not in "\n".join(lines[:6]):
            faults.append(f"{name}: a header opens with an @file comment")
        for number, line in enumerate(lines, 1):
            if MARKERS.search(line):
                faults.append(f"{name}:{number}: leave no marker behind, file an issue")
        for start, length in function_lengths(lines):
            if length > FUNCTION_LINES_MAX and not name.endswith("_test.cc"):
                faults.append(f"{name}:{start}: function of {length} lines, at most {FUNCTION_LINES_MAX}")
    print("\n".join(faults) if faults else "house rules hold")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
