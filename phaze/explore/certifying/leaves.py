"""The values of a document one by one, and which of them were worked out again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from phaze.explore.certifying.checks import CLOSE
from phaze.explore.certifying.document import Check

Path = tuple[str | int, ...]
_SHOWN = 3


def leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every value of a document in JSON that holds no others, under its path; empty lists and objects, too."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = [leaf for key, item in items for leaf in leaves(item, (*path, key))]
    yield from inner or [(path, value)]


def told(path: Path) -> str:
    """A path as text, without the places in lists: `frontier[].tdp_w`."""
    text = "".join("[]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


@dataclass
class Leaves:
    """What a document claims, and which of it nobody has worked out again yet."""

    claimed: Mapping[Path, object]
    left: set[Path] = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is worked out yet."""
        self.left = set(self.claimed)

    @classmethod
    def of(cls, document: BaseModel) -> Leaves:
        """Of a document as it is printed."""
        return cls(dict(leaves(document.model_dump(mode="json", by_alias=True))))

    def hold(self, *paths: Path) -> None:
        """Take what is at or below some paths as worked out: a check elsewhere speaks of it."""
        for path in paths:
            self.left -= {leaf for leaf in self.left if leaf[: len(path)] == path}

    def compare(
        self,
        name: str,
        path: Path,
        found: object,
        skipped: frozenset[str] = frozenset(),
        *,
        hurried: bool = False,
    ) -> Check:
        """All that the document claims at a path, against the same in JSON worked out again.

        `skipped`: keys directly below it that are not compared. `hurried`: a time limit may be why something differs,
        which then counts as not worked out.
        """

        def below(leaf: Path) -> bool:
            return leaf[: len(path)] == path and not (len(leaf) > len(path) and leaf[len(path)] in skipped)

        again = {leaf: value for leaf, value in leaves(found, path) if below(leaf)}
        claimed = {leaf: value for leaf, value in self.claimed.items() if below(leaf)}
        wrong = _differing(claimed, again)
        if wrong and hurried:
            return Check(name=name, passed=True, note="differs as it may where time was short: not checked")
        self.left -= set(claimed)
        shown = [
            f"{told(leaf)}: claimed {_shown(claimed, leaf)}, found {_shown(again, leaf)}"
            for leaf in wrong[:_SHOWN]
        ]
        note = "; ".join(shown) if wrong else f"{len(claimed)} values"
        return Check(name=name, passed=not wrong, note=note)

    @property
    def unchecked(self) -> list[str]:
        """Where values are that nothing has worked out again, each place once."""
        return sorted({told(leaf) for leaf in self.left})


def alike(claimed: object, found: object) -> bool:
    """Whether two values in JSON are the same, numbers but for rounding."""
    return not _differing(dict(leaves(claimed)), dict(leaves(found)))


def _differing(claimed: Mapping[Path, object], found: Mapping[Path, object]) -> list[Path]:
    both = claimed.keys() & found.keys()
    return [
        leaf for leaf in {**claimed, **found} if leaf not in both or not _same(claimed[leaf], found[leaf])
    ]


def _same(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or abs(one - other) <= CLOSE * max(abs(one), abs(other))
    return one == other


def _shown(values: Mapping[Path, Any], leaf: Path) -> str:
    return repr(values[leaf])[:60] if leaf in values else "nothing"
