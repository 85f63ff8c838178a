"""Which numbers of devices a budget for the cluster is enough for: architectures that keep it, and their roofline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze.explore.candidates import Block, Candidates
from phaze.explore.cluster_choice import MOST_DEVICES, Choice, grid, with_devices
from phaze.explore.evaluator import Evaluator
from phaze.explore.formats import fastest_flops_per_s
from phaze.explore.portfolio.member import roofline
from phaze.explore.progress import Progress
from phaze.explore.request import ClusterBudget, ExploreRequest
from phaze.hardware.price import price_usd


def choices(request: ExploreRequest, budget: ClusterBudget, progress: Progress) -> list[Choice]:
    """Every number of devices for which some architecture keeps the budget, ascending, with its roofline as bound."""
    counts = [_Count(with_devices(request, budget, devices)) for devices in grid(MOST_DEVICES)]
    for done, (block, some) in enumerate(_blocks(counts)):
        progress.update(
            "counting devices", done, 0, f"{len(block)} architectures, {len(some)} numbers of devices"
        )
        peaks = np.stack([fastest_flops_per_s(block.table, request.task, r) for r in request.task.recipes])
        price = price_usd(block.table, block.area_mm2) if budget.cost_usd is not None else block.area_mm2
        for count in some:
            count.add(block, price, peaks)
    left = [count.within > 0 for count in counts]
    most = left.index(False) if False in left else len(left)  # more devices leave less for each
    return [count.choice for count in counts[:most]]


def _blocks(counts: list[_Count]) -> Iterator[tuple[Block, list[_Count]]]:
    """Architectures that keep the budgets of one device, block by block, and the numbers of devices they stand for.

    With more devices some of them do. Where clocks follow from the power that is left, each number has its own.
    """
    request = counts[0].request
    alone = [[count] for count in counts] if request.budgets.dvfs else [counts]
    for some in alone:
        for block in Candidates(request.space, some[0].request.budgets).blocks():
            if len(block):
                yield block, some


@dataclass
class _Count:
    """One number of devices while architectures are counted; `best`: highest peak in each recipe, and whose it is."""

    request: ExploreRequest
    within: int = 0
    best: list[tuple[float, int]] = field(default_factory=list)

    def add(self, block: Block, price: NDArray[np.float64], peaks: NDArray[np.float64]) -> None:
        """Count those of a block, of some prices (A,) and peaks (recipes, A), that keep the budgets."""
        limits = self.request.budgets
        kept = np.ones(len(block), dtype=np.bool_)
        for amount, limit in ((block.tdp_w, limits.power_w), (price, limits.price_usd)):
            kept &= amount <= (np.inf if limit is None else limit)
        rows = np.flatnonzero(kept)
        self.within += len(rows)
        if len(rows):
            top = rows[peaks[:, rows].argmax(axis=1)]
            found = list(
                zip(peaks[np.arange(len(top)), top].tolist(), block.numbers[top].tolist(), strict=True)
            )
            self.best = [max(pair) for pair in zip(self.best or found, found, strict=True)]

    @property
    def choice(self) -> Choice:
        """The number of devices, to be searched."""
        fastest = tuple(dict.fromkeys(number for _, number in self.best))
        table = Candidates(self.request.space, self.request.budgets).table(np.array(fastest))
        bound = float(roofline(Evaluator(self.request.task, table)).max())
        return Choice(self.request, bound, self.within, fastest)
