"""The steps: each takes a document of one version of its format and gives that of the next.

A version of a format is one JSON Schema: whatever changes it, be it one more optional key, makes a new version, since
readers refuse keys that they do not know. Version 1 of `phaze-result` grew before that rule, by optional keys only,
which are at their defaults where they are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from phaze.errors import InputError

Document = Mapping[str, Any]
Step = Callable[[Document], Document]


def same_but_for_the_manifest(schema: str) -> Step:
    """To `schema`, whose manifest also tells what was asked and of what machine; nobody knows it of old runs."""

    def step(document: Document) -> Document:
        return {**document, "schema": schema, "manifest": {**document["manifest"], **_UNKNOWN}}

    return step


def as_is(schema: str) -> Step:
    """To `schema`, which says more; what nobody could ask for before is at its default."""

    def step(document: Document) -> Document:
        return {**document, "schema": schema}

    return step


def whatif_2(document: Document) -> Document:
    """Points hold plans of version 2; when and by what they were made stands there only."""
    points = _with_plans(document, same_but_for_the_manifest("dse-plan/2"))
    return {**document, "schema": "dse-whatif/2", "points": points, "manifest": None}


def whatif_3(document: Document) -> Document:
    """Points hold plans of version 3."""
    return {**document, "schema": "dse-whatif/3", "points": _with_plans(document, as_is("dse-plan/3"))}


def _with_plans(document: Document, step: Step) -> list[dict[str, Any]]:
    """Points, each plan a version later."""
    return [
        {**point, "plan": None if point["plan"] is None else step(point["plan"])}
        for point in document["points"]
    ]


def never_kept(document: Document) -> Document:
    """No step: what was printed and not kept lacks its manifest. Raises InputError."""
    raise InputError(f"{document['schema']} was printed only and says too little to be read back; ask again")


_UNKNOWN = {"asked": None, "machine": None}
