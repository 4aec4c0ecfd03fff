#!/usr/bin/env python3
"""Writes random small templates for the comparison with jinja2:  random_templates.py SEED COUNT OUT.json

The file is a list of {"name", "template", "inputs"}, as render_template_oracle.py reads it. Half of the templates are
single expressions, the others statements with white-space control. Deterministic for a seed.
"""

import json
import random
import sys

VARIABLES = {
    "i": 7,
    "neg": -3,
    "zero": 0,
    "f": 2.5,
    "s": "Hello, World",
    "u": "Åsa 😀 ñandú",
    "e": "",
    "ws": "  a b\t c\n\n",
    "t": True,
    "fa": False,
    "n": None,
    "l": [3, 1, 2],
    "ls": ["b", "A", "c", "a"],
    "mixed": [1, "x", None, 2.0, [1], {"k": 1}],
    "el": [],
    "d": {"b": 2, "a": 1, "items": "x"},
    "dd": {"k": {"x": [1, {"y": "z"}]}, "s": "text"},
    "people": [
        {"name": "bo", "age": 3, "tag": {"x": 1}},
        {"name": "Al", "age": 1, "tag": {"x": 2}},
        {"name": "cy", "age": 3},
    ],
    "messages": [
        {"role": "system", "content": " Be kind. "},
        {"role": "user", "content": "Hi <b>\n", "n": 1},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"x": [1, 2.5, "é"]}}]},
    ],
}
NAMES = list(VARIABLES) + ["missing"]
LITERALS = ["0", "1", "2", "-1", "10", "1.5", "0.1", "'a'", "'abc'", "'A b'", "''", "'é'", "' x '", "'a,b,c'", "true",
            "false", "none", "[]", "[1, 2]", "['a', 'b']", "{}", "{'a': 1}", "(1, 2)", "(1,)", "'%s'", "'{}'", "'1'",
            "'-2.5'", "'a\\nb'", "1e20", "2**40"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "first", "last", "list", "string", "int", "float",
           "abs", "round", "sort", "unique|list", "join", "join(',')", "reverse|list", "reverse", "sum", "min", "max",
           "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "default('d')",
           "default('d', true)", "d(1)", "replace('a', 'b')", "replace('', '-')", "replace('b', '', 1)", "items|list",
           "dictsort", "dictsort(by='value')", "map('string')|list", "map('upper')|join", "map(attribute='name')|list",
           "map(attribute='x', default=0)|list", "select|list", "reject|list", "select('string')|list",
           "select('number')|list", "reject('none')|list", "selectattr('age', '>', 1)|list", "selectattr('name')|list",
           "rejectattr('tag')|list", "batch(2)|list", "slice(2)|list", "indent", "indent(2, true)", "e", "safe", "wordcount",
           "center(9)", "truncate(5)", "truncate(6, true, '.', 0)", "count", "groupby('age')|length", "round(1)",
           "round(1, 'floor')", "int(5)", "urlencode", "sort(reverse=true)", "sort(attribute='name')", "forceescape",
           "format(1)", "format('x')", "trim('a')", "first|default('none')", "sum(start=1)", "sum(attribute='age')",
           "unique(true)|list", "max(attribute='age')", "attr('x')", "list|length", "select('in', [1, 'a'])|list"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable",
         "sequence", "true", "false", "odd", "even", "divisibleby 2", "divisibleby(3)", "eq 1", "equalto('a')", "ne 2",
         "gt 1", "lt 1", "ge 1", "le(1)", "in [1, 'a']", "lower", "upper", "callable", "sameas none", "escaped"]
METHODS = ["upper()", "lower()", "strip()", "lstrip()", "rstrip('d')", "split()", "split(',')", "split('l', 1)",
           "rsplit(none, 1)", "splitlines()", "title()", "capitalize()", "swapcase()", "replace('l', 'L')",
           "replace('', '.', 2)", "startswith('H')", "endswith(('d', 'x'))", "find('o')", "rfind('o')", "count('l')",
           "index('o')", "join(['a', 'b'])", "join(ls)", "format(1, 2)", "zfill(5)", "center(9, '*')", "ljust(4)",
           "rjust(15)", "partition(' ')", "rpartition('o')", "removeprefix('H')", "removesuffix('d')", "isdigit()",
           "isalpha()", "isupper()", "isspace()", "items()", "keys()", "values()", "items()|list", "keys()|list",
           "get('a')", "get('zz', 9)", "copy()", "append(1)", "update({})", "istitle()", "expandtabs(2)", "islower()",
           "isalnum()", "find('l', 4)", "count('', 2, 5)"]
ATTRIBUTES = ["name", "role", "content", "k", "a", "b", "x", "s", "items", "missing", "__class__", "real"]
SUBSCRIPTS = ["0", "-1", "1", "5", "'a'", "'k'", "'name'", "1:", ":2", "::-1", "::2", "-2:", "1:-1", ":", "none", "'items'",
              "true", "i", "1.0", "neg:", "100:", "5:1:-2"]


# Most expressions fit together: (values, filters and methods after them), by the type of the value.
TYPED = {
    "text": (
        ["s", "u", "e", "ws", "'abc'", "'A b-c (d)'", "'é😀'", "'a,b,c'", "'<x> & \"y\"'", "' x '", "messages[0].content",
         "people[0].name", "'x' * i", "s ~ i", "s + u", "ls | join", "l | tojson", "d | tojson", "s[1:4]", "u[::-1]", "u[-3]",
         "'%s|%5d|%.2f' % (s, i, f)", "'{:>8}{!r}'.format(u, s)", "i | string", "l | string"],
        ["| upper", "| lower", "| title", "| capitalize", "| trim", "| trim('a ')", "| length", "| first", "| last", "| list",
         "| replace('a', 'bb')", "| replace('', '-')", "| reverse", "| indent", "| indent(2, true, true)", "| e", "| safe",
         "| wordcount", "| center(12)", "| truncate(7)", "| truncate(6, true, '.', 0)", "| urlencode", "| tojson", "| string",
         "| default('d', true)", "| int", "| float", "| batch(3) | list", "| sort", "| unique | join", "| format",
         "| select('lower') | join", "| map('upper') | list", "| safe + '<'", "| e ~ '<'", "| tojson(ensure_ascii=true)",
         ".upper()", ".lower()", ".strip()", ".lstrip()", ".rstrip('d ')", ".split()", ".split(' ', 1)", ".rsplit(none, 1)",
         ".split('l')[-1]", ".splitlines()", ".title()", ".capitalize()", ".swapcase()", ".replace('l', 'LL')",
         ".replace('', '.', 2)", ".startswith('H')", ".endswith(('d', 'x'))", ".find('o')", ".rfind('o', -4)", ".count('l')",
         ".count('')", ".join(ls)", ".zfill(15)", ".center(20, '*')", ".ljust(14)", ".rjust(15, 'é')", ".partition(' ')",
         ".rpartition('o')", ".removeprefix('H')", ".isdigit()", ".isalpha()", ".isupper()", ".istitle()", ".islower()",
         ".isprintable()", ".expandtabs(3)", "[0]", "[-1]", "[1:]", "[:-2]", "[::-1]", "[::3]", "[5:1:-1]", "[9]", " * 2",
         " ~ none", " is string", " is lower", " in s", " == 'abc'", " < 'b'", " or 'x'", " and 1", " % 1 if false else 'q'"],
    ),
    "number": (
        ["i", "neg", "zero", "f", "t", "1", "10", "2.5", "-7", "1e3", "0.1 + 0.2", "i // 2", "neg % 4", "f * 3", "i ** 2",
         "l | length", "l | sum", "l | max", "'12' | int", "'1.25' | float", "messages | length - 1", "2 ** 62", "1 / 3"],
        ["| abs", "| round", "| round(1)", "| round(1, 'ceil')", "| int", "| float", "| string", "| default(1)", "| tojson",
         "+ 1", "- f", "* neg", "/ 4", "// 2", "// -2.5", "% 3", "% -2.5", "** 2", "** -1", "~ s", "< 3", ">= f", "== 7",
         "!= true", "in l", "is odd", "is even", "is divisibleby 3", "is integer", "is float", "is number", "is boolean",
         "is eq 7", "is gt 2", "and s", "or s", "< i < 10", "if t else s", "in [7, 2.5]", "| round(-1)"],
    ),
    "list": (
        ["l", "ls", "mixed", "el", "people", "messages", "[1, [2, 3]]", "(1, 'a')", "range(5)", "d.items()", "d.keys()",
         "dd.k.x", "s.split(',')", "l + ls", "l * 2", "people | map(attribute='name') | list", "messages[1:]", "l[::-1]",
         "ls | sort", "(u | list)", "d | dictsort", "people | groupby('age') | list", "l | reverse | list"],
        ["| length", "| first", "| last", "| list", "| join(', ')", "| join", "| sort", "| sort(reverse=true)", "| reverse | list",
         "| unique | list", "| sum", "| max", "| min", "| tojson", "| tojson(indent=2)", "| map('string') | list",
         "| map('length') | list", "| map(attribute='name') | list", "| map(attribute='tag.x', default=0) | list",
         "| selectattr('age', '>', 1) | list", "| selectattr('tag') | list", "| rejectattr('n', 'defined') | list",
         "| select('string') | list", "| reject('none') | list", "| select | list", "| select('in', [1, 'a']) | list",
         "| batch(2) | list", "| batch(2, 0) | list", "| slice(2) | list", "| slice(3, 'f') | list", "| string", "| default(1)",
         "| groupby('name') | list", "| sort(attribute='name')", "| sum(attribute='age')", "| join('-', attribute='name')",
         "| max(attribute='age')", "| tojson(separators=(',', ':'))", "[0]", "[-1]", "[1:]", "[:2]", "[::-1]", "[::2]", "[7]",
         "[0].name", "[0]['role']", " + [1]", " * 2", "| list == l", " is iterable", " is sequence", " is mapping",
         "| random is defined if false else 'z'", "| count", "| list | tojson", " < [2]", "| list | sort(case_sensitive=true)"],
    ),
    "dict": (
        ["d", "dd", "people[0]", "messages[2]", "{'a': 1, 2: [none]}", "dict(l=1, x='y')", "{}", "dd.k"],
        [".items() | list", ".keys() | list", ".values() | list", ".items()", ".get('a')", ".get('zz', 1)", "['a']", ".a",
         ".name", ".role", ".k.x[1].y", "['items']", "| tojson", "| tojson(indent=4)", "| tojson(sort_keys=true)", "| length",
         "| list", "| items | list", "| dictsort", "| dictsort(by='value')", "| string", "| first", "| join(',')",
         " is mapping", " is iterable", " == d", "| default(1)", ".missing is defined", "| urlencode", "| map('upper') | list",
         "| dictsort(false, 'key', true)", ".b if d else 1", ".tool_calls[0].arguments | tojson", "| attr('get') is callable"],
    ),
}


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def typed(self):
        values, rest = TYPED[self.r.choice(list(TYPED))]
        value = self.r.choice(values)
        return (f"({value}) " if " " in value else f"{value} ") + self.r.choice(rest)

    def atom(self):
        return self.r.choice(NAMES) if self.r.random() < 0.6 else self.r.choice(LITERALS)

    def expression(self, depth):
        if depth <= 0:
            return self.atom()
        if self.r.random() < 0.75:
            return self.typed()
        roll = self.r.random()
        inner = lambda: self.expression(depth - 1)
        if roll < 0.18:
            return f"{inner()} {self.r.choice(OPERATORS)} {inner()}"
        if roll < 0.25:
            return f"({inner()})"
        if roll < 0.42:
            return f"{self.atom()} | {self.r.choice(FILTERS)}"
        if roll < 0.50:
            return f"({inner()}) | {self.r.choice(FILTERS)}"
        if roll < 0.60:
            return f"{self.r.choice(NAMES)}.{self.r.choice(METHODS)}"
        if roll < 0.66:
            return f"{self.r.choice(NAMES)}.{self.r.choice(ATTRIBUTES)}"
        if roll < 0.74:
            return f"{self.r.choice(NAMES)}[{self.r.choice(SUBSCRIPTS)}]"
        if roll < 0.80:
            return f"{self.atom()} is {self.r.choice(['', 'not '])}{self.r.choice(TESTS)}"
        if roll < 0.84:
            return f"{inner()} if {inner()} else {inner()}"
        if roll < 0.86:
            return f"{inner()} if {inner()}"
        if roll < 0.88:
            return f"not {inner()}"
        if roll < 0.90:
            return f"[{inner()}, {inner()}]"
        if roll < 0.92:
            return "{" + f"'p': {inner()}, {self.atom()}: {inner()}" + "}"
        if roll < 0.94:
            return f"({inner()}, {inner()})"
        if roll < 0.96:
            return f"{self.r.choice('-+')}{self.atom()}"
        if roll < 0.98:
            return f"range({self.r.randint(-3, 5)}, {self.r.randint(-3, 9)}) | list"
        return f"{self.atom()} {self.r.choice(['<', '==', '<='])} {self.atom()} {self.r.choice(['<', '!=', 'in'])} {self.atom()}"

    def space(self):
        return self.r.choice(["", "", "\n", " ", "\n  ", "  \n", "\t", "\n\n", "\n \n "])

    def tag(self, text):
        return "{%" + self.r.choice(["", "", "-", "+"]) + f" {text} " + self.r.choice(["", "", "-", "+"]) + "%}"

    def output(self, text):
        return "{{" + self.r.choice(["", "", "-"]) + f" {text} " + self.r.choice(["", "", "-"]) + "}}"

    def body(self, depth, loop=False):
        return "".join(self.space() + self.statement(depth, loop) for _ in range(self.r.randint(1, 3))) + self.space()

    def statement(self, depth, loop):
        roll = self.r.random()
        if depth <= 0 or roll < 0.25:
            extra = ["loop.index", "loop.last", "loop.previtem", "loop.nextitem", "loop.cycle(1, 2)", "x", "loop.length",
                     "loop.revindex0", "loop.first", "x, loop.index0"] if loop else []
            return self.output(self.r.choice(extra) if extra and self.r.random() < 0.5 else self.expression(1))
        if roll < 0.32:
            return self.r.choice(["text", "a b", "é", "<|im_start|>", "{", "}}", "# x"])
        if roll < 0.36:
            return "{#" + self.r.choice(["", "-", "+"]) + " note\n " + self.r.choice(["", "-", "+"]) + "#}"
        if roll < 0.50:
            middle = self.tag(f"elif {self.expression(1)}") + self.body(depth - 1, loop) if self.r.random() < 0.3 else ""
            other = self.tag("else") + self.body(depth - 1, loop) if self.r.random() < 0.5 else ""
            return self.tag(f"if {self.expression(1)}") + self.body(depth - 1, loop) + middle + other + self.tag("endif")
        if roll < 0.66:
            target = self.r.choice(["x", "x", "x", "x, y"])
            source = self.r.choice(["l", "ls", "d", "d.items()", "people", "messages", "range(4)", "s", "el", "missing",
                                    "l | map('string')", "dd | items", "[[1, 2], [3, 4]]", "messages[1:]", "l | reverse"])
            condition = self.r.choice(["", "", "", " if x", " if x is string", f" if {self.expression(1)}"])
            other = self.tag("else") + self.body(depth - 1, loop) if self.r.random() < 0.3 else ""
            return (self.tag(f"for {target} in {source}{condition}") + self.body(depth - 1, True) + other
                    + self.tag("endfor"))
        if roll < 0.76:
            return self.tag(f"set {self.r.choice(['v', 'w', 'i', 's', 'l', 'v, w', 'ns.a'])} = {self.expression(1)}")
        if roll < 0.80:
            return self.tag("set ns = namespace(a=1, b='x')")
        if roll < 0.84:
            name = self.r.choice(["v", "w", "v | upper", "s | trim"])
            return self.tag(f"set {name}") + self.body(depth - 1, loop) + self.tag("endset")
        if roll < 0.88:
            return (self.tag(f"macro m(a, b={self.atom()})") + self.body(depth - 1, False)
                    + self.r.choice(["", self.output("caller()"), self.output("varargs"), self.output("kwargs")])
                    + self.tag("endmacro") + self.output(f"m({self.atom()})"))
        if roll < 0.91:
            return (self.tag("call m(1)") if self.r.random() < 0.7 else self.tag("call(z) m(2, b=3)")) + self.body(
                depth - 1, False) + self.tag("endcall")
        if roll < 0.93:
            return self.tag(f"filter {self.r.choice(['upper', 'trim', 'indent', 'length', 'replace(s, i)'])}") + self.body(
                depth - 1, loop) + self.tag("endfilter")
        if roll < 0.95:
            return self.tag(f"with v = {self.atom()}, i = {self.atom()}") + self.body(depth - 1, loop) + self.tag("endwith")
        if roll < 0.96:
            return self.tag("generation") + self.body(depth - 1, False) + self.tag("endgeneration")
        if roll < 0.97:
            return self.tag("raw") + self.r.choice(["{{ x }}", " {% y %} ", "\n z"]) + self.tag("endraw")
        return self.tag(self.r.choice(["break", "continue"])) if loop else self.output("ns.a")

    def template(self, number):
        if number % 2 == 0:
            return self.output(self.expression(self.r.randint(1, 3)))
        return self.body(3)


def main(arguments):
    if len(arguments) != 3:
        sys.exit(__doc__)
    seed, count, path = int(arguments[0]), int(arguments[1]), arguments[2]
    generator = Generator(seed)
    cases = [
        {"name": f"random {seed}/{number}", "template": generator.template(number), "inputs": VARIABLES}
        for number in range(count)
    ]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(cases, file)


if __name__ == "__main__":
    main(sys.argv[1:])
