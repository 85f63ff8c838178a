"""A model of many blocks known by one of few: blocks that repeat are cut into layers once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

from phaze.workload.families.family import FamilyDimensions

_NUMBERED = re.compile(r"(\D*)(\d+)(.*)")
_BESIDE = 2  # blocks beside those that differ: one to repeat, and the last, which nothing follows


@dataclass(frozen=True, slots=True)
class Repeats:
    """A model of `few` blocks stands for one of `many`, whose further ones are as its last but one."""

    few: int
    many: int

    def extended(
        self, index: tuple[int, ...], names: tuple[str, ...]
    ) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
        """Kinds and names of the layers of all blocks; None where layers do not tell to which block they belong."""
        runs = [list(run) for _, run in groupby(range(len(names)), key=lambda i: names[i].split(".")[0])]
        numbered = [(i, m) for i, run in enumerate(runs) if (m := _NUMBERED.fullmatch(names[run[0]]))]
        if len(numbered) != self.few or len({m[1] for _, m in numbered}) != 1:
            return None
        at = numbered[-2][0]
        order = runs[: at + 1] + [runs[at]] * (self.many - self.few) + runs[at + 1 :]
        first = numbered[0][0]
        renamed = [
            _renumbered(names[i], place - first) if first <= place < first + self.many else names[i]
            for place, run in enumerate(order)
            for i in run
        ]
        return tuple(index[i] for run in order for i in run), tuple(renamed)


def repeats_of(dimensions: FamilyDimensions) -> tuple[FamilyDimensions, Repeats] | None:
    """The same model with as few blocks as show all there are; None where that is no shorter."""
    if len(dimensions.repeats) != 1:
        return None
    ((field, (fewest, many)),) = dimensions.repeats.items()
    few = fewest + _BESIDE
    if few >= many:
        return None
    return dimensions.model_copy(update={field: few}), Repeats(few, many)


def _renumbered(name: str, number: int) -> str:
    found = _NUMBERED.fullmatch(name)
    return f"{found[1]}{number}{found[3]}" if found else name
