"""The YAML reader gives plain values, as PyYAML does, and ends in bounded time on whatever it is given."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from phaze.errors import InputError
from phaze.yaml_file import DEEPEST, parse_yaml, read_yaml

ROOT = Path(__file__).parents[1]
SHIPPED = [
    path for folder in ("arch_templates", "workloads", "phaze") for path in (ROOT / folder).rglob("*.yaml")
]
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)


def test_shipped_files_have_the_values_that_pyyaml_gives():
    assert len(SHIPPED) > 200
    for path in SHIPPED:
        assert repr(read_yaml(path)) == repr(yaml.safe_load(path.read_text(encoding="utf-8"))), path


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "--- 3",
            "a: 0x1F",
            "a: 017",
            "a: 1_000",
            "a: -12",
            "a: yes",
            "a: No",
            "a: ~",
            "a: 1e9",
            "a: 1.5e+9",
        ),
        *(
            'a: "1"',
            "a: .5",
            "a: +.5",
            "- &x [1]\n- *x",
            "{<<: [{a: 1}, {a: 2, b: 3}], c: 1}",
            "a: |\n  x\n  y\n",
        ),
        *("a: &b {c: 1, d: 2}\ne: {<<: *b, d: 3}", "a: 0b11", "{2: a, true: b, null: c}"),
    ],
)
def test_plain_values_are_those_of_pyyaml(text):
    assert repr(parse_yaml(text, "x")) == repr(yaml.safe_load(text))


@pytest.mark.parametrize("text", ["190:20:30", "2001-01-01", "2001-99-99", "=", "1e400"])
def test_dates_and_numbers_in_base_60_are_words(text):
    assert parse_yaml(f"a: {text}", "x") == {"a": text}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 50_000, f"line 1: more than {DEEPEST} mappings and lists"),
        ("[" * 3_000 + "]" * 3_000, f"more than {DEEPEST}"),
        ("- " * 40_000, f"more than {DEEPEST}"),
        (BOMB, "line 5: more than 50000 values"),
        ("[" + "1," * 100_000 + "]", "more than 50000 values"),
        ("a: &a [*a]", "the alias *a stands for what it is in"),
        ("a: *b", "the alias *b stands for nothing"),
        ("a: !!int ''", "line 1: the tag !!int is not read"),
        ("a: !!timestamp x", "the tag !!timestamp"),
        ("a: !!python/object/apply:os.system [x]", "the tag !!python/object"),
        ("a: 1\nb: .inf", "line 2: .inf is not a finite number"),
        ("a: .nan", ".nan is not a finite number"),
        ("a: " + "9" * 5_000, "a number of more than 300 digits"),
        ("a: 0x_", "0x is not a number"),
        ("a: 1\nb: 2\na: 3", "line 3: the key 'a' is given twice"),
        ("? [a]\n: b", "a key must be a word or a number"),
        ("{<<: 1}", "<< takes a mapping"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("a: \0", "not valid YAML"),
        ("a: [", "line "),
    ],
)
def test_what_is_no_plain_file_is_refused_at_once(text, words):
    began = time.perf_counter()
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "file.yaml")
    assert str(caught.value).startswith("file.yaml")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300
    assert time.perf_counter() - began < 5


def test_long_files_and_what_is_no_text_are_refused(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(InputError, match="longer than the 1 MiB"):
        read_yaml(path)
    with pytest.raises(InputError, match="longer than the 1 MiB"):
        read_yaml(Path("/dev/zero"))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        read_yaml(path)
    for missing in (tmp_path, tmp_path / "no", Path("a\0b")):
        with pytest.raises(InputError):
            read_yaml(missing)
