"""Hostile texts by grammar: valid documents with a few things replaced, removed, doubled or broken."""

from __future__ import annotations

import copy
import json
import math


class Raw(str):
    """A piece of YAML that stands in a text as it is."""


FACTORS = (-1, 0, 1e-30, 1e-9, 1e-3, 0.5, 1.5, 2, 3, 1e3, 1e9, 1e30)
NUMBERS = (0, -1, 1, 2, 7, 0.5, -0.5, 1e-320, 1e-9, 1e9, 1e30, 1e308, -1e308, 2**31, 2**63, 2**70, 10**400)
ODD_NUMBERS = (math.nan, math.inf, -math.inf)
WORDS = (
    *(
        "",
        " ",
        "x",
        "none",
        "null",
        "true",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "1e-999",
        "0x10",
        "1_000",
        "7",
        "TC",
    ),
    *("1GB", "-5GB", "0GB/s", "5 GHz", "1e400GB/s", "3 furlongs", "400W", "1us", "-1us", "10 %"),
    *("1e5000us"),
    *(
        "../../x",
        "a/b",
        "/dev/null",
        "new\nline: 1",
        "tab\there",
        "\0",
        "é\u202e\u0301",
        "\U0001f600",
        "h100",
        "%s{0}",
    ),
    *(
        "<script>alert(1)</script>",
        "[red]x[/red]",
        "[/]",
        "x" * 300,
        "y" * 100_000,
        "__class__",
        "$(id)",
        "'; --",
    ),
)
FRAGMENTS = (
    *(
        "!!int ''",
        "!!float ''",
        "!!bool x",
        "!!timestamp x",
        "!!binary '@@'",
        "!!null x",
        "!!set {a}",
        "!!omap [a]",
    ),
    *(
        "!!python/object/apply:os.system [x]",
        "!!merge x",
        "!!str [a]",
        "!!map [a]",
        "!!seq {a: b}",
        "!x y",
        "!<!> x",
    ),
    *(
        "190:20:30",
        "-1:30.5",
        "0x_",
        "0b",
        "0o9",
        "1_000",
        ".inf",
        "-.inf",
        ".nan",
        "2001-99-99",
        "2001-01-01",
        "=",
        "~",
    ),
    *(
        "*missing",
        "&a [*a]",
        "&a {b: *a}",
        '"\\ud800"',
        '"\\0"',
        "'\\'",
        "{[a]: b}",
        "{? [a, b] : c}",
        "{null: 1}",
    ),
    *(
        "{<<: 1}",
        "{<<: [{a: 1}, 2]}",
        "[" * 60,
        "[" * 500 + "]" * 500,
        "1e400",
        "9" * 5000,
        "- -",
        "%",
        "@",
        "`",
        "|",
        ">",
    ),
)
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefghijkl", "bcdefghijklm", strict=True)
)
BYTES = (
    *(
        b"",
        b"\xff\xfe\x00",
        b"\x80abc",
        b"\xef\xbb\xbf",
        b"\0",
        b"---\n---\n",
        b"a: 1\n---\nb: 2\n",
        b"[]",
        b"{}",
        b"3",
        b"- a\n",
    ),
    *(
        b"[" * 50_000,
        b"[" * 3_000 + b"]" * 3_000,
        b"{a: " * 3_000,
        b"- " * 40_000,
        b"? " * 3_000,
        b"!!x " * 1_000,
    ),
    *(
        BOMB.encode(),
        b"x: " + b"y" * 3_000_000,
        b"9" * 100_000,
        b'{"a":' * 40_000,
        b"&a " * 1_000 + b"x",
        b"a: b: c",
        b"\t- a",
    ),
    *(
        b"%YAML 9.9\n---\na: 1\n",
        b"a: 1\na: 2\n",
        b'"' + b"\\" * 999,
        b"[" + b"1, " * 300_000 + b"1]",
        b"NaN",
        b"null",
        b'"x"',
    ),
)


def text_of(value, *, yaml):
    """A tree as a text: JSON, or YAML in flow style with its raw pieces in it."""
    if isinstance(value, Raw):
        return str(value) if yaml else json.dumps(str(value))
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}: {text_of(item, yaml=yaml)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(text_of(item, yaml=yaml) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value) and yaml:
        return {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
    return json.dumps(value, ensure_ascii=not yaml or "\ud800" in str(value))


def places(value, path=()):
    """The paths of all values in a tree but that of the tree."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def odd(random, tree):
    """A value that hardly belongs anywhere."""
    kinds = {
        "number": lambda: random.choice(NUMBERS),
        "no number": lambda: random.choice(ODD_NUMBERS),
        "word": lambda: random.choice(WORDS),
        "fragment": lambda: Raw(random.choice(FRAGMENTS)),
        "constant": lambda: random.choice((None, True, False)),
        "shape": lambda: random.choice(([], {}, [[]], [None], {"x": 1}, [0] * 2_000, {"": ""})),
        "other part": lambda: copy.deepcopy(at(tree, random.choice(list(places(tree)) or [()]))),
    }
    return kinds[random.choices(list(kinds), (4, 2, 4, 4, 1, 1, 1))[0]]()


def scaled(random, value):
    """A number like the one that was there, but too small, too large, or of the other sign."""
    factor = random.choice(FACTORS)
    try:
        number = value * factor
    except OverflowError:  # a whole number beyond those that have a fraction
        return -value
    return int(number) if isinstance(value, int) and random.random() < 0.7 and abs(number) < 1e300 else number


def mutated(random, tree):
    """A copy of a document with one to three changes, and now and then none."""
    tree = copy.deepcopy(tree)
    for _ in range(random.choice((0, 1, 1, 1, 1, 2, 3))):
        paths = list(places(tree))
        if not paths:
            break
        change(random, tree, *random.choice(paths))
    return tree


def change(random, tree, *path):
    """One change in place at a path of the tree."""
    parent, last = at(tree, path[:-1]), path[-1]
    value = parent[last]
    action = random.choices(("scale", "odd", "remove", "rename", "double", "wrap"), (5, 5, 1, 1, 1, 1))[0]
    if action == "scale" and isinstance(value, int | float) and not isinstance(value, bool):
        parent[last] = scaled(random, value)
    elif action == "remove":
        del parent[last]
    elif action == "rename" and isinstance(parent, dict):
        parent[random.choice((last + "x", *WORDS[:9], WORDS[-5]))] = parent.pop(last)
    elif action == "double" and isinstance(parent, list):
        parent.extend(copy.deepcopy([value] * random.choice((1, 1, 50))))
    elif action == "wrap":
        parent[last] = random.choice(([value], {"value": value, "source": "x"}, [value, value]))
    else:
        parent[last] = odd(random, tree)


def broken(random, data):
    """Bytes with a fault below the grammar: cut, doubled, of another encoding, or with something strange in them."""
    cut = random.randrange(len(data) + 1)
    faults = (
        lambda: data[:cut],
        lambda: data + data,
        lambda: data[:cut] + random.choice(BYTES)[:4_000] + data[cut:],
        lambda: data[:cut] + bytes([random.randrange(256)]) + data[cut + 1 :],
        lambda: data.decode("utf-8", "replace").encode("utf-16"),
        lambda: data.replace(b" ", b"\t"),
        lambda: data.replace(b", ", b"\n"),
        lambda: random.choice(BYTES),
        lambda: random.choice(BYTES),
    )
    return random.choice(faults)()


def content(random, tree, *, yaml):
    """The bytes of a file: a changed document, one time in six broken as a text, too."""
    data = text_of(mutated(random, tree), yaml=yaml).encode("utf-8", "surrogatepass")
    return broken(random, data) if random.random() < 1 / 6 else data
