#!/usr/bin/env python3
"""Random JSON schemas against a running server: every answer that ends by itself must parse and validate.

    run.py URL [--count 200] [--seed 1] [--max-tokens 1200]

Needs the Python package jsonschema. Prints one JSON line with what was found; exit 1 when an answer breaks its schema.
"""
import argparse
import concurrent.futures
import json
import random
import sys
import urllib.request

import jsonschema

WORDS = ["name", "age", "colour", "items", "note", "size", "kind", "id", "tags", "score"]


def leaf(rng):
    kind = rng.randrange(9)
    if kind == 0:
        return {"type": "string", "maxLength": rng.randrange(1, 20)}
    if kind == 1:
        low = rng.randrange(-500, 500)
        return {"type": "integer", "minimum": low, "maximum": low + rng.randrange(1, 2000)}
    if kind == 2:
        return {"type": "boolean"}
    if kind == 3:
        return {"enum": rng.sample(["red", "green", "blue", 3, 4.5, None, True], rng.randrange(1, 5))}
    if kind == 4:
        return {"type": "string", "format": rng.choice(["date", "time", "date-time", "uuid", "ipv4"])}
    if kind == 5:
        return {"type": "string", "pattern": rng.choice(["^[A-Z]{2}-\\d{3}$", "^(foo|ba[rz])+$", "^\\w{1,8}\\.txt$"])}
    if kind == 6:
        return {"type": ["null", "integer"], "maximum": 99}
    if kind == 7:
        return {"const": rng.choice(["fixed", 7, [1, "two"], {"a": None}])}
    return {"type": "number", "minimum": 0}


def schema(rng, depth):
    kind = rng.randrange(6)
    if depth == 0 or kind == 0:
        return leaf(rng)
    if kind in (1, 2, 3):
        names = rng.sample(WORDS, rng.randrange(1, 5))
        out = {"type": "object", "properties": {n: schema(rng, depth - 1) for n in names},
               "required": [n for n in names if rng.random() < 0.7]}
        if rng.random() < 0.6:
            out["additionalProperties"] = False
        return out
    if kind == 4:
        low = rng.randrange(0, 3)
        return {"type": "array", "items": schema(rng, depth - 1), "minItems": low, "maxItems": low + rng.randrange(1, 3)}
    return {"anyOf": [schema(rng, depth - 1) for _ in range(rng.randrange(1, 4))]}


def tree():
    node = {"type": "object", "properties": {"v": {"type": "integer", "maximum": 9},
            "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}}, "required": ["v", "next"]}
    return {"$defs": {"node": node}, "$ref": "#/$defs/node"}


def ask(url, index, wanted, max_tokens):
    body = {"messages": [{"role": "user", "content": "Invent an entry for a small data base and answer in JSON."}],
            "temperature": 1.0, "seed": index, "max_tokens": max_tokens,
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": wanted}}}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        answer = json.load(reply)
    choice = answer["choices"][0]
    return choice["message"]["content"], choice["finish_reason"], answer["usage"]["completion_tokens"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=1200)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    schemas = [tree() if i % 20 == 19 else schema(rng, 3) for i in range(args.count)]
    found = {"schemas": args.count, "valid": 0, "cut": 0, "broken": 0, "tokens": 0}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda job: ask(args.url, job[0], job[1], args.max_tokens), enumerate(schemas))
        for wanted, (text, finish, tokens) in zip(schemas, answers):
            found["tokens"] += tokens
            if finish != "stop":
                found["cut"] += 1
                continue
            try:
                jsonschema.Draft202012Validator(wanted, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).validate(json.loads(text))
                found["valid"] += 1
            except (ValueError, jsonschema.ValidationError) as fault:
                found["broken"] += 1
                print(json.dumps(wanted), text, fault, sep="\n", file=sys.stderr)
    print(json.dumps(found))
    return 1 if found["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
