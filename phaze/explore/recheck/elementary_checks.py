"""Checks that every run takes: figures worked out twice, the bound against the objective, points counted again; and the
values of a document one by one, with which of them were worked out again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import BaseModel

from phaze.explore.documents.certify_document import Check
from phaze.explore.documents.result_document import Certificate, ResultDocument
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.recheck.architecture_sample import Population
from phaze.explore.request.explore_request import ExploreRequest
from phaze.tolerances import SAME

HURRIED = 1 / 4
"""Share of its time limit that the shortest part of a search has to itself."""


def same_figure(name: str, claimed: float, found: float) -> Check:
    """One figure of the run against the same one worked out again."""
    passed = abs(claimed - found) <= SAME * max(abs(claimed), abs(found))
    return Check(name=name, passed=passed, note=f"claimed {claimed:.9g}, found {found:.9g}")


def throughput_reached(name: str, claimed: float, found: float, *, exactly: bool) -> Check:
    """A throughput of the run that is reached again; where it stopped early, a better plan may exist."""
    check = same_figure(name, claimed, found)
    return check if exactly else check.model_copy(update={"passed": claimed <= found * (1 + SAME)})


def hurried(request: ExploreRequest, document: ResultDocument) -> bool:
    """Whether the time limit may have changed what a run found: parts of a search have shares of it."""
    return document.manifest.wall_time_s >= HURRIED * request.time_limit_s


def bound_agrees(claimed: Certificate) -> Check:
    """The bound is no worse than what was reached, and the gap and optimality follow from the two."""
    c = claimed
    consistent = c.upper_bound >= c.objective_value * (1 - SAME)
    gap = c.upper_bound / c.objective_value - 1 if c.objective_value > 0 else np.inf
    return Check(
        name="bound, gap and optimality agree",
        passed=consistent and abs(gap - c.gap) <= SAME * (1 + c.gap) and c.optimal == (c.gap == 0),
        note=f"bound {c.upper_bound:.9g}, objective {c.objective_value:.9g}, gap {c.gap:.3g}",
    )


def counts_agree(parts: Iterable[ExploreRequest], claimed: Certificate) -> Check:
    """Points of the space and those over budget, enumerated again, of all parts of a run."""
    size = within = 0
    for part in parts:
        candidates = Candidates(part.space, part.budgets)
        factor = 1 if part.others else part.task.points_per_architecture
        size += candidates.size * factor
        within += len(Population(candidates, part.tasks).numbers) * factor
    c = claimed
    passed = (
        c.space_size == size == c.over_budget + c.pruned + c.evaluated
        and c.over_budget == size - within
        and sum(c.pruned_by.values()) == c.pruned
    )
    note = f"{size:,} points, {size - within:,} over budget; claimed {c.space_size:,} and {c.over_budget:,}"
    return Check(name="counts", passed=passed, note=note)


Path = tuple[str | int, ...]
_SHOWN = 3


def leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every value of a document in JSON that holds no others, under its path; empty lists and objects, too."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = [leaf for key, item in items for leaf in leaves(item, (*path, key))]
    yield from inner or [(path, value)]


def path_text(path: Path) -> str:
    """A path as text, without the places in lists: `frontier[].tdp_w`."""
    text = "".join("[]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


@dataclass
class Leaves:
    """Claims of a document by path, and the paths of those that nobody has worked out again yet."""

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
            f"{path_text(leaf)}: claimed {_shown(claimed, leaf)}, found {_shown(again, leaf)}"
            for leaf in wrong[:_SHOWN]
        ]
        note = "; ".join(shown) if wrong else "1 value" if len(claimed) == 1 else f"{len(claimed)} values"
        return Check(name=name, passed=not wrong, note=note)

    @property
    def unchecked(self) -> list[str]:
        """Where values are that nothing has worked out again, each place once."""
        return sorted({path_text(leaf) for leaf in self.left})


def same_value(claimed: object, found: object) -> bool:
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
        return one == other or abs(one - other) <= SAME * max(abs(one), abs(other))
    return one == other


def _shown(values: Mapping[Path, Any], leaf: Path) -> str:
    return repr(values[leaf])[:60] if leaf in values else "nothing"
