from __future__ import annotations

import dataclasses
import subprocess
import sys
from enum import Enum, StrEnum
from types import MappingProxyType

import numpy as np
import pytest
from pydantic import BaseModel

from phaze.digest import digest, file_sha256, json_sha256, sha256_of


class Colour(StrEnum):
    RED = "red"


class Other(Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Chip:
    cores: int
    shared: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)


@dataclasses.dataclass(frozen=True)
class Link:
    cores: int


class Model(BaseModel):
    cores: int


DIFFERENT = (
    None, True, False, 1, 1.0, 0, 0.0, -0.0, float("inf"), float("nan"), 0.1, 0.1 + 1e-17 + 1e-16, "1", b"1", "",
    (), [[]], (1, 2), ((1,), 2), ("a", "b"), ("ab",), {"a": 1}, {"a": 2}, {"a", "b"}, {"ab"},
    Colour.RED, Other.RED, "red", Chip(1), Chip(2), Link(1), Model(cores=1), np.array([1, 2]), np.array([1.0, 2.0]),
    np.array([[1, 2]]), np.array([1, 2], dtype=np.int32), np.array(["a"]), np.float32(0.5), -1, 10**30,
)  # fmt: skip


def test_different_contents_have_different_digests():
    found = [digest(value) for value in DIFFERENT]
    assert len(set(found)) == len(DIFFERENT)


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, MappingProxyType({"a": 1})),
        ({"x", "y", "z"}, frozenset({"z", "y", "x"})),
        ((1, 2), [1, 2]),
        (Chip(1, {"a": 1}), Chip(1)),
        (np.arange(6).reshape(2, 3).T, np.ascontiguousarray(np.arange(6).reshape(2, 3).T)),
        (np.broadcast_to(np.array([7.0]), (3,)), np.array([7.0, 7.0, 7.0])),
        (np.array(["a", None], dtype=object), np.array(["a", None], dtype=object)),
        (0.5, np.float64(0.5)),
    ],
)
def test_equal_contents_have_one_digest(one, same):
    assert digest(one) == digest(same)


@pytest.mark.parametrize("value", [object(), len, iter(()), {"a": [object()]}, Chip])
def test_what_is_not_known_is_refused(value):
    with pytest.raises(TypeError, match="no digest of"):
        digest(value)


def test_a_digest_is_the_same_in_every_process():
    code = (
        "from phaze.digest import digest; from phaze.hardware.cluster_network import load_network; import numpy as np\n"
        "print(digest({'a', 'b', 'c'}, {'x': 1.5, 'y': (None, np.arange(3.0))}, load_network()))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout.strip()) == 40


def test_sha256_is_that_of_any_other_tool(tmp_path):
    file = tmp_path / "file"
    file.write_text('{"a": 1, "b": [null]}')
    told = subprocess.run(["sha256sum", file], capture_output=True, text=True, check=True).stdout.split()[0]
    assert told == file_sha256(file) == sha256_of(file.read_bytes()) == json_sha256({"b": [None], "a": 1})
