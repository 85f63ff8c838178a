"""Arguments of a wrong type end in one sentence that names them; those of the right types pass."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import phaze
from phaze.errors import InputError, PhazeError
from phaze.inputs.option_reading import is_of

VERBS = ("explore", "evaluate", "compare", "plan", "sweep")
UNCHECKED = {"progress"}


class Odd:
    """Of no type that anything takes."""


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_of_every_verb_refuses_what_is_of_no_type(verb):
    function = getattr(phaze, verb)
    needed = {"arch": "a100", "workload": "gpt3-small", "devices": 1}
    names = set(inspect.signature(function).parameters)
    for name in names - UNCHECKED:
        given = {key: value for key, value in needed.items() if key in names} | {name: Odd()}
        with pytest.raises(InputError, match=f"^{name} .*Odd"):
            function(**given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("devices", "none"),
        ("devices", True),
        ("devices", 2.0),
        ("kv_cache", 0.5),
        ("recompute", []),
        ("recompute", b"full"),
        ("bind", {1: 2}),
        ("bind", [3]),
        ("sequence_parallel", "yes"),
        ("out", 3),
    ],
)
def test_values_of_another_type_are_refused(name, value):
    with pytest.raises(InputError, match=f"^{name} is "):
        phaze.evaluate("a100", "gpt3-small", **{"devices": 1, name: value})


@pytest.mark.parametrize("value", [0, -1, 10**40])
@pytest.mark.parametrize(
    "name", ["devices", "expert_parallel", "microbatch", "zero", "chunks", "tensor_parallel"]
)
def test_numbers_out_of_range_end_in_a_sentence(name, value):
    if (name, value) != ("zero", 0):
        with pytest.raises(PhazeError):
            phaze.evaluate("a100", "gpt3-small", **{"devices": 1, "global_batch": 8, name: value})


@pytest.mark.parametrize(
    ("value", "annotation", "right"),
    [
        (np.int64(3), "int", True),
        (np.float64(3), "float | None", True),
        (Fraction(1, 3), "float", True),
        (math.nan, "float", True),
        (True, "float", False),
        (Path(), "str | Path | None", True),
        ("a=1", "Mapping[str, int] | Sequence[str] | None", True),
        (["a", Path("b")], "Sequence[str | Path | Network]", True),
        (["a", 3], "Sequence[str | Path | Network]", False),
        ({"a": 3}, "Mapping[str, int] | Sequence[str]", True),
        ({"a": "x"}, "Mapping[str, int] | Sequence[str]", False),
        (Odd(), "str | Odd", True),
        (None, "str", False),
    ],
)
def test_annotations_are_read_as_they_are_written(value, annotation, right):
    assert is_of(value, annotation) is right
