"""Collectives put together for a network: stages of any fan-in on the tiers of a tree, the fastest of all.

A reduce-scatter in stages of f1, f2, ... devices leaves everyone with a part of 1 / (f1 f2 ...); an all-gather runs
them backwards (hierarchical co-located parameter servers). Wide stages take few steps and touch little memory, narrow
ones have no incast: GenTree (arXiv 2409.04202) chooses for every switch of a tree. Here every order of stages is a path
from one device to all of them, and those that no other path beats at any size are found exactly, label by label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from phaze.cost.collectives.collective_algorithms import Level, joins_all
from phaze.cost.collectives.collective_law import Law
from phaze.hardware.network_tiers import Algorithm


@dataclass(frozen=True)
class Stage:
    """A part of a collective: `fan_in` devices each exchange theirs by an algorithm, on tiers `first` to `last`."""

    fan_in: int
    first: int
    last: int
    algorithm: Algorithm = Algorithm.SYNTHESIZED

    @property
    def words(self) -> str:
        """Fan-in, with what else there is to say."""
        over = f" over {self.last - self.first + 1} tiers" if self.last > self.first else ""
        by = "" if self.algorithm is Algorithm.SYNTHESIZED else f" by {self.algorithm}"
        return f"{self.fan_in}{over}{by}"


@dataclass(frozen=True)
class Way:
    """Stages one after the other, in the order of the reduce-scatter, and their seconds."""

    stages: tuple[Stage, ...]
    law: Law

    @property
    def words(self) -> str:
        """Stages, one after the other; `|` where the next tier begins."""
        found = ""
        for before, stage in zip((None, *self.stages), self.stages, strict=False):
            joint = "" if before is None else " | " if stage.first > before.last else " x "
            found += joint + stage.words
        return found

    def then(self, stage: Stage, law: Law) -> Way:
        """With one more stage."""
        return Way((*self.stages, stage), self.law.then(law))


StageLaws = Callable[[Stage, int], Sequence[Law]]
"""Laws of a stage on one of so many equal parts of the payload, on all chips: several for ways of one algorithm."""

Options = Callable[[int], Sequence[Algorithm]]
"""Algorithms that a tier may run by, all of its members at once."""


def synthesized(group: Sequence[Level], options: Options, stage_laws: StageLaws, start: Law) -> list[Way]:
    """All ways of a group in stages that no other is never slower than, on every chip.

    Ways are stages inside a tier, any algorithm on a whole tier, and single stages over several whole tiers.
    """
    ways: dict[tuple[int, int], list[Way]] = {(0, 1): [Way((), start)]}
    for tier, level in enumerate(group):
        members = round(level.members)
        for covered in (n for n in range(1, members) if members % n == 0):
            for way in ways.pop((tier, covered), []):
                for stage in _next(group, options, tier, covered):
                    at = _after(group, tier, covered, stage)
                    for law in stage_laws(stage, round(level.below) * covered):
                        ways[at] = unbeaten(ways.get(at, []), way.then(stage, law))
    return ways[len(group), 1]


def _next(group: Sequence[Level], options: Options, tier: int, covered: int) -> Iterator[Stage]:
    """Stages that may follow where `covered` members of a tier have been through."""
    members = round(group[tier].members)
    if covered == 1:
        for algorithm in options(tier):
            yield Stage(members, tier, tier, algorithm)
        whole = members
        for last in range(tier + 1, len(group)):
            if not all(map(joins_all, group[tier : last + 1])):
                break
            whole *= round(group[last].members)
            yield Stage(whole, tier, last)
    if joins_all(group[tier]):
        left = members // covered
        for fan_in in (n for n in range(2, left + 1) if left % n == 0):
            yield Stage(fan_in, tier, tier)


def _after(group: Sequence[Level], tier: int, covered: int, stage: Stage) -> tuple[int, int]:
    """Tier, and how many of its members have been through, after a stage."""
    if stage.last > tier or stage.algorithm is not Algorithm.SYNTHESIZED:
        return stage.last + 1, 1
    through = covered * stage.fan_in
    return (tier + 1, 1) if through == round(group[tier].members) else (tier, through)


def unbeaten(ways: list[Way], new: Way) -> list[Way]:
    """Ways with one more, without those that another one is never slower than."""
    if any(one.law.never_slower(new.law) for one in ways):
        return ways
    return [one for one in ways if not new.law.never_slower(one.law)] + [new]
