"""What differs between two runs: what was asked, what it was read from, and what came out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from phaze.explore.document import ResultDocument
from phaze.explore.record import Record

CLOSE = 1e-9
"""Relative difference below which two numbers are the same: another machine may round the last digits."""

_ANSWER = (
    "best",
    "certificate",
    "frontier",
    "next_best",
    "comparison",
    "portfolio",
    "cluster",
    "training_run",
)


class Change(Record):
    """One value that differs; null where a run has none."""

    name: str = Field(description="Path of the value, names joined by dots.")
    first: Any = Field(description="In the first run.")
    second: Any = Field(description="In the second run.")


class Difference(Record):
    """Two runs side by side."""

    schema_: Literal["phaze-diff/1"] = Field(default="phaze-diff/1", alias="schema")
    asked: tuple[Change, ...] = Field(description="The request, every default spelled out.")
    inputs: tuple[Change, ...] = Field(description="SHA-256 of the files that were read.")
    versions: tuple[Change, ...] = Field(description="The tool, Python and libraries.")
    answer: tuple[Change, ...] = Field(description="Everything that came out, but for times and versions.")

    @property
    def same_question(self) -> bool:
        """Whether both runs were asked the same of the same files."""
        return not (self.asked or self.inputs)

    @property
    def same_answer(self) -> bool:
        """Whether both runs ended in the same answer."""
        return not self.answer


def difference(first: ResultDocument, second: ResultDocument) -> Difference:
    """Compare two results value by value."""
    a, b = (run.model_dump(mode="json", by_alias=True) for run in (first, second))
    return Difference(
        asked=_changes(a["request"], b["request"]),
        inputs=_changes(a["manifest"]["inputs_sha256"], b["manifest"]["inputs_sha256"]),
        versions=_changes(a["manifest"]["versions"], b["manifest"]["versions"]),
        answer=_changes(*({name: run.get(name) for name in _ANSWER} for run in (a, b))),
    )


def _changes(first: object, second: object) -> tuple[Change, ...]:
    a, b = dict(_leaves(first, "")), dict(_leaves(second, ""))
    names = dict.fromkeys([*a, *b])
    return tuple(
        Change(name=name, first=a.get(name), second=b.get(name))
        for name in names
        if not _same(a.get(name), b.get(name))
    )


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """(path, value) of everything that is not a container; list items by their id or name where they have one."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for position, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{_label(inner, position)}]")
    elif value is not None:
        yield path, value


def _label(item: object, position: int) -> str:
    named = item if isinstance(item, Mapping) else {}
    return str(named.get("id") or named.get("name") or position)


def _same(first: object, second: object) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=CLOSE, abs_tol=0.0)
    return bool(first == second)
