#!/usr/bin/env python3
"""Writes the texts whose perplexity is measured:  make_texts.py [--out tests/golden/text]

numbers.txt   King James Bible (1611, public domain), Numbers 22 and 23, a verse a line; from Debian's package bible-kjv
stories.txt   questions of the default model's own evaluation set (Apache-2.0), its shortest ones, without the answers
"""
import argparse
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden/text")
    out = a.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    verses = subprocess.run(["bible", "-f", "Num22:1-Num23:30"], check=True, capture_output=True, text=True).stdout
    (out / "numbers.txt").write_text(re.sub(r"^\S+ ", "", verses, flags=re.M))

    cases = [json.loads(line) for line in (ROOT / "models/eval.jsonl").read_text().splitlines()]
    texts = [c["messages"][-1]["content"] for c in cases if c["length"] == 200 and c["id"].endswith(("-05", "-11"))]
    (out / "stories.txt").write_text("\n".join(texts) + "\n")


if __name__ == "__main__":
    main()
