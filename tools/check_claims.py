#!/usr/bin/env python3
"""Holds the record of claims to the claim files, and the number of met claims to what it was.

    check_claims.py

Every claim of claims/*/claim.toml has one line in claims/results.jsonl, with the same text and bound, and no line is of
anything else; `kvist claims --record` writes them. The number of met claims is at least the number in claims/ratchet: it may
only grow, and whoever makes more claims met writes the new number there.
"""
import json
import pathlib
import sys
import tomllib

CLAIMS = pathlib.Path(__file__).resolve().parent.parent / "claims"


def main():
    faults = []
    claims = {}
    for path in sorted(CLAIMS.glob("*/claim.toml")):
        for claim in tomllib.loads(path.read_text(encoding="utf-8")).get("claim", []):
            claims[path.parent.name, claim["name"]] = claim
    for folder in sorted(p for p in CLAIMS.iterdir() if p.is_dir()):
        if not (folder / "claim.toml").exists():
            faults.append(f"claims/{folder.name}: has no claim.toml")
    met = 0
    for number, line in enumerate((CLAIMS / "results.jsonl").read_text(encoding="utf-8").splitlines(), 1):
        record = json.loads(line)
        claim = claims.pop((record["id"], record["name"]), None)
        if claim is None:
            faults.append(f"claims/results.jsonl:{number}: no file claims '{record['id']} {record['name']}', or it is there twice")
            continue
        if (claim["text"], claim.get("accept", "")) != (record["claim"], record["accept"]):
            faults.append(f"claims/results.jsonl:{number}: measured for another text or bound; run kvist claims {record['id']} --record")
        met += record["state"] == "met"
    faults += [f"claims/{folder}: '{name}' was never recorded; run kvist claims {folder} --record" for folder, name in claims]
    least = int((CLAIMS / "ratchet").read_text(encoding="utf-8"))
    if met != least:
        what = "write the new number there" if met > least else "a claim that was met no longer is"
        faults.append(f"claims/ratchet: {met} claims are met and it says {least}: {what}")
    print("\n".join(faults) or f"{met} claims met, as recorded")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
