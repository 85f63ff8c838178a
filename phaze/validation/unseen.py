"""Errors on chips that constants were not fitted on: each chip left out in turn, by data set and family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable

from pydantic import BaseModel, TypeAdapter

from phaze.yaml_file import parse_yaml


class _Entry(BaseModel):
    """What matters here of the constants of one law and family."""

    family: str
    unseen_pct: Mapping[str, float] = {}


@lru_cache(maxsize=1)
def unseen() -> Mapping[str, Mapping[str, float]]:
    """Mean absolute percentage errors by data set and family; `generic`: chips of a family never seen.

    Where several laws say something of one set and family, the largest.
    """
    found: dict[str, dict[str, float]] = {}
    for file in _files(resources.files("phaze.cost.kernels")):
        content = parse_yaml(file.read_text(encoding="utf-8"), file.name)
        for entry in TypeAdapter(list[_Entry]).validate_python(content):
            for name, error in entry.unseen_pct.items():
                errors = found.setdefault(name, {})
                errors[entry.family] = max(error, errors.get(entry.family, 0.0))
    return found


def _files(folder: Traversable) -> Iterator[Traversable]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from _files(item)
        elif item.name.endswith(".yaml"):
            yield item
