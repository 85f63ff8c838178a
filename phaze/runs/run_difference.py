"""Differences between two runs: what was asked, what it was read from, and what came out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from phaze.errors import InputError
from phaze.explore.documents.document_record import Record
from phaze.explore.documents.result_document import RESULT_SCHEMA
from phaze.runs.document_formats import Answer
from phaze.tolerances import SAME

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


def compare_runs(first: Answer, second: Answer) -> Difference:
    """Compare two answers value by value. Raises InputError where they are of different kinds."""
    if type(first) is not type(second):
        kinds = " and ".join(run.model_dump(by_alias=True)["schema"] for run in (first, second))
        raise InputError(f"answers to different verbs ({kinds}) cannot be compared")
    a, b = (run.model_dump(mode="json", by_alias=True) for run in (first, second))
    now, then = a["manifest"] or {}, b["manifest"] or {}
    return Difference(
        asked=_changes(a.get("request"), b.get("request")),
        inputs=_changes(now.get("inputs_sha256"), then.get("inputs_sha256")),
        versions=_changes(now.get("versions"), then.get("versions")),
        answer=_changes(*map(_answer, (a, b))),
    )


def _answer(document: Mapping[str, Any]) -> object:
    """Answer of a document, without the time it took and what it was made with."""
    if document["schema"] == RESULT_SCHEMA:  # its courses of searches hold seconds
        return {name: document.get(name) for name in _ANSWER}
    return _timeless(
        {n: value for n, value in document.items() if n not in ("schema", "request", "manifest")}
    )


def _timeless(value: object) -> object:
    """Without manifests further inside: a variation holds whole plans."""
    if isinstance(value, dict):
        return {name: _timeless(inner) for name, inner in value.items() if name != "manifest"}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


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
        return math.isclose(first, second, rel_tol=SAME, abs_tol=0.0)
    return bool(first == second)
