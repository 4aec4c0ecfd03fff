#!/usr/bin/env python3
"""Renders chat templates with Python's jinja2, set up as Hugging Face transformers sets it up.

The other side of the comparison in src/modelfile/chat_template_test.cc.

  render_template_oracle.py probe                 exit 0 when jinja2 can be imported, 77 when not
  render_template_oracle.py render CASES.json     one JSON line per case: {"name", "text"} or {"name", "error"}
  render_template_oracle.py expect CASES.json     fills in "expected" or "error" of every case and rewrites the file

CASES.json is a list of {"name", "template", "inputs"}; `inputs` are the variables, over the defaults below.
"now" among them is the time for strftime_now, in seconds since 1970, UTC.
"""

import datetime
import functools
import json
import sys

DEFAULTS = {
    "messages": [],
    "tools": None,
    "documents": None,
    "add_generation_prompt": True,
    "bos_token": "",
    "eos_token": "",
}


@functools.lru_cache(maxsize=None)
def make_environment(now):
    import jinja2
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        """{% generation %} prints its body; trainers use it to find the assistant's text."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            call = self.call_method("body_text")
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        def body_text(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(pattern):
        moment = datetime.datetime.fromtimestamp(now, datetime.timezone.utc)
        return moment.replace(tzinfo=None).strftime(pattern)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


@functools.lru_cache(maxsize=64)
def compile_template(source, now):
    return make_environment(now).from_string(source)


def render(case):
    """(text, None) or (None, what went wrong)."""
    variables = {**DEFAULTS, **case["inputs"]}
    now = variables.pop("now", 0)
    try:
        text = compile_template(case["template"], now).render(**variables)
        text.encode("utf-8")  # A lone surrogate is no text.
        return text, None
    except RecursionError:
        return None, "RecursionError"
    except Exception as error:  # Whatever Python raises: the template failed.
        return None, f"{type(error).__name__}: {error}"


def main(arguments):
    if arguments[:1] == ["probe"] or len(arguments) != 2 or arguments[0] not in ("render", "expect"):
        if arguments[:1] != ["probe"]:
            sys.exit(__doc__)
        try:
            import jinja2  # noqa: F401
        except ImportError:
            sys.exit(77)
        return
    command, path = arguments
    with open(path, encoding="utf-8") as file:
        cases = json.load(file)
    for case in cases:
        text, error = render(case)
        if command == "render":
            line = {"name": case["name"], "text": text} if error is None else {"name": case["name"], "error": error}
            print(json.dumps(line))
        else:
            case.pop("expected", None)
            case.pop("error", None)
            if error is None:
                case["expected"] = text
            else:
                case["error"] = error
    if command == "expect":
        with open(path, "w", encoding="utf-8") as file:
            json.dump(cases, file, ensure_ascii=False, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
