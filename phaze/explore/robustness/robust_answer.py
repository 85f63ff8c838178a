"""The robust answer: designs near the best, ranked again where the constants of the model are wrong together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.errors import OutOfTimeError
from phaze.explore.documents.robustness_document import RobustDesign, Robustness, VariedConstant
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.explore_request import ExploreRequest
from phaze.explore.request.search_progress import Clock, Progress, SilentProgress
from phaze.explore.robustness.constant_scenarios import (
    Scenarios,
    Uncertainty,
    draw_scenarios,
    load_uncertainty,
)
from phaze.explore.robustness.near_optimal_designs import NearOptimal, NearOptimalSearch, merit
from phaze.explore.robustness.scenario_throughputs import (
    ComparedDesigns,
    distinct_designs,
    scenario_throughput,
)
from phaze.tolerances import SAME


def regrets(values: Floats) -> Floats:
    """Share of the scenario's best that each design misses, (N, M)."""
    best = values.max(axis=1, keepdims=True)
    return np.where(best > 0, 1.0 - values / np.where(best > 0, best, 1.0), 0.0)


def best_probability(values: Floats) -> Floats:
    """Share of scenarios in which no design is better, (M,); designs that tie all count."""
    share: Floats = (regrets(values) <= SAME).mean(axis=0)
    return share


def rank_correlations(nominal: Floats, values: Floats) -> Floats:
    """Kendall's tau-b of every scenario's ranking against the nominal one, (N,); 1 where all values tie."""
    first, second = np.triu_indices(len(nominal), k=1)
    before = _order(nominal[first], nominal[second])
    after = _order(values[:, first], values[:, second])
    scale = np.sqrt(np.abs(before).sum() * np.abs(after).sum(axis=1))
    agree = (after * before).sum(axis=1)
    return np.where(scale > 0, agree / np.where(scale > 0, scale, 1.0), 1.0)


def _order(one: Floats, other: Floats) -> NDArray[np.int64]:
    """1 where the first is larger, -1 where the second is, 0 where they tie."""
    difference = one - other
    tied = np.abs(difference) <= SAME * np.maximum(np.abs(one), np.abs(other))
    return np.where(tied, 0, np.sign(difference)).astype(np.int64)


SLACK = 0.05
DESIGNS, SCENARIOS = 20, 64
_LOW, _HIGH = 5.0, 95.0  # percentiles


def judge_robustness(
    request: ExploreRequest,
    best_value: float,
    *,
    slack: float = SLACK,
    designs: int = DESIGNS,
    scenarios: int = SCENARIOS,
    uncertainty: Uncertainty | None = None,
    clock: Clock | None = None,
    enough: Callable[[int], bool] = lambda _: False,
    progress: Progress | None = None,
) -> Robustness:
    """How far the answer to `request` holds, whose best objective is `best_value` (1 / W where TDP is minimised).

    Compares at most `designs` of those within `slack` of the best, alike ones once, in so many scenarios. The time
    limit holds for finding them, `enough` ends scenarios once so many are known. Raises OutOfTimeError where no
    design is found in time.
    """
    timer, report = clock or Clock(request.time_limit_s), progress or SilentProgress()
    candidates = Candidates(request.space, request.budgets)
    least = best_value * (1.0 - slack) * (1.0 - SAME)
    near = NearOptimalSearch(candidates, request.task, request.objective, least, timer, report).run()
    if not len(near.numbers):
        raise OutOfTimeError("the time limit passed before a design near the best was evaluated")
    compared = distinct_designs(candidates, near, designs)
    drawn = draw_scenarios(
        load_uncertainty() if uncertainty is None else uncertainty, scenarios, request.seed
    )
    known, throughput = scenario_throughput(request.task, compared, drawn, report, enough)
    return Judgement(request, candidates, near, compared, drawn.only(known), throughput).document(slack)


@dataclass(frozen=True)
class Judgement:
    """The designs compared with their throughput (N, M) in every scenario: what follows from it."""

    request: ExploreRequest
    candidates: Candidates
    near: NearOptimal
    compared: ComparedDesigns
    drawn: Scenarios
    throughput: Floats

    @cached_property
    def nominal(self) -> Floats:
        """The objective at the constants of the model, (M,)."""
        return merit(self.request.objective, self.compared.throughput, self.compared.block.tdp_w)

    @cached_property
    def tdp_w(self) -> Floats:
        """TDP in every scenario, (N, M)."""
        return self.drawn.power_w(self.compared.block.table, self.request.budgets.tdp_margin)

    @cached_property
    def area_mm2(self) -> Floats:
        """Area in every scenario, (N, M)."""
        return self.drawn.area_mm2(self.compared.block.table)

    @cached_property
    def values(self) -> Floats:
        """The objective in every scenario, (N, M)."""
        return merit(self.request.objective, self.throughput, self.tdp_w)

    def document(self, slack: float) -> Robustness:
        """All of it."""
        designs = [self._design(i) for i in range(len(self.nominal))]
        steadiest = min(designs, key=lambda d: (d.worst_regret, d.price))
        safest = max(designs, key=lambda d: (d.least_value, -d.price))
        agreement = rank_correlations(self.nominal, self.values)
        return Robustness(
            summary=_summary(designs, steadiest, slack),
            objective=self.request.objective.value,
            slack=slack,
            near_optimal=len(self.near.numbers),
            promising=self.near.promising,
            complete=self.near.complete,
            scenarios=self.drawn.count,
            seed=self.request.seed,
            rank_correlation=float(agreement.mean()),
            least_rank_correlation=float(agreement.min()),
            winner=designs[0].id,
            least_regret=steadiest.id,
            best_worst_case=safest.id,
            designs=designs,
            constants=[
                VariedConstant(group=group, name=name, low=r.low, high=r.high, source=r.source)
                for group, name, r in self.drawn.uncertainty.ranges()
            ],
        )

    def _design(self, i: int) -> RobustDesign:
        block, budgets = self.compared.block, self.request.budgets
        architecture = self.candidates.architecture(int(block.numbers[i]))
        missed = self._regrets[:, i]
        return RobustDesign(
            id=architecture.name,
            architecture=dict(architecture.fields),
            alike=int(self.compared.alike[i]),
            throughput_samples_per_s=float(self.compared.throughput[i]),
            tdp_w=float(block.tdp_w[i]),
            area_mm2=float(block.area_mm2[i]),
            price=float(1.0 - self.nominal[i] / self.nominal.max()),
            best_probability=float(self._best[i]),
            mean_regret=float(missed.mean()),
            worst_regret=float(missed.max()),
            least_value=float(self.values[:, i].min()),
            throughput_range_samples_per_s=_range(self.throughput[:, i]),
            tdp_range_w=_range(self.tdp_w[:, i]),
            over_power_probability=_share_above(self.tdp_w[:, i] + self._network_w[i], budgets.power_w),
            over_area_probability=_share_above(self.area_mm2[:, i], budgets.area_mm2),
        )

    @cached_property
    def _network_w(self) -> Floats:
        """Share of the network in the budget of every device, (M,), which no constant changes."""
        draw, table = self.request.budgets.network, self.compared.block.table
        return np.zeros(len(table)) if draw is None else draw.of(table)

    @cached_property
    def _regrets(self) -> Floats:
        return regrets(self.values)

    @cached_property
    def _best(self) -> Floats:
        return best_probability(self.values)


def _range(values: Floats) -> tuple[float, float]:
    low, high = np.percentile(values, [_LOW, _HIGH])
    return float(low), float(high)


def _share_above(values: Floats, limit: float | None) -> float | None:
    """Share of scenarios above a budget, rounding aside; None without one."""
    return None if limit is None else float((values > limit * (1.0 + SAME)).mean())


def _summary(designs: list[RobustDesign], steadiest: RobustDesign, slack: float) -> str:
    """How safe the winner is, and what to build instead, in one sentence."""
    winner = designs[0]
    parts = [
        f"{winner.id} stays the best of {_kinds(len(designs))} within {100 * slack:g} % in "
        f"{100 * winner.best_probability:.0f} % of the scenarios and is never more than "
        f"{100 * winner.worst_regret:.1f} % behind"
    ]
    if steadiest.id == winner.id:
        parts.append("no other design has a smaller worst regret")
    else:
        parts.append(
            f"{steadiest.id} is never more than {100 * steadiest.worst_regret:.1f} % behind, at a price of "
            f"{100 * steadiest.price:.1f} %"
        )
    if winner.over_power_probability is not None:
        parts.append(f"the winner's TDP is above the budget in {100 * winner.over_power_probability:.0f} %")
    return "; ".join(parts)


def _kinds(count: int) -> str:
    return "1 kind of design" if count == 1 else f"{count} kinds of design"
