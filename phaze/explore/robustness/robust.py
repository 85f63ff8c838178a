"""The robust answer: designs near the best, ranked again where the constants of the model are wrong together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.errors import OutOfTimeError
from phaze.explore.candidates import Candidates
from phaze.explore.progress import Clock, Progress, Silent
from phaze.explore.request import ExploreRequest
from phaze.explore.robustness.compared import Compared, distinct, throughputs
from phaze.explore.robustness.document import RobustDesign, Robustness, VariedConstant
from phaze.explore.robustness.near_optimal import NearOptimal, NearOptimalSearch, merit
from phaze.explore.robustness.scenarios import Scenarios, draw
from phaze.explore.robustness.statistics import best_probability, rank_correlations, regrets
from phaze.explore.robustness.uncertainty import Uncertainty, load_uncertainty

FloatArray = NDArray[np.float64]
SLACK = 0.05
DESIGNS, SCENARIOS = 20, 64
_ROUNDING = 1e-9
_LOW, _HIGH = 5.0, 95.0  # percentiles


def robust(
    request: ExploreRequest,
    best_value: float,
    *,
    slack: float = SLACK,
    designs: int = DESIGNS,
    scenarios: int = SCENARIOS,
    uncertainty: Uncertainty | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Robustness:
    """How far the answer to `request` holds, whose best objective is `best_value` (1 / W where TDP is minimised).

    Compares at most `designs` of those within `slack` of the best, alike ones once, in so many scenarios. The time
    limit holds for finding them. Raises OutOfTimeError where none is found in time.
    """
    timer, report = clock or Clock(request.time_limit_s), progress or Silent()
    candidates = Candidates(request.space, request.budgets)
    least = best_value * (1.0 - slack) * (1.0 - _ROUNDING)
    near = NearOptimalSearch(candidates, request.task, request.objective, least, timer, report).run()
    if not len(near.numbers):
        raise OutOfTimeError("the time limit passed before a design near the best was evaluated")
    compared = distinct(candidates, near, designs)
    drawn = draw(load_uncertainty() if uncertainty is None else uncertainty, scenarios, request.seed)
    throughput = throughputs(request.task, compared, drawn, report)
    return Judgement(request, candidates, near, compared, drawn, throughput).document(slack)


@dataclass(frozen=True)
class Judgement:
    """The designs compared with their throughput (N, M) in every scenario: what follows from it."""

    request: ExploreRequest
    candidates: Candidates
    near: NearOptimal
    compared: Compared
    drawn: Scenarios
    throughput: FloatArray

    @cached_property
    def nominal(self) -> FloatArray:
        """The objective at the constants of the model, (M,)."""
        return merit(self.request.objective, self.compared.throughput, self.compared.block.tdp_w)

    @cached_property
    def tdp_w(self) -> FloatArray:
        """TDP in every scenario, (N, M)."""
        return self.drawn.power_w(self.compared.block.table, self.request.budgets.tdp_margin)

    @cached_property
    def area_mm2(self) -> FloatArray:
        """Area in every scenario, (N, M)."""
        return self.drawn.area_mm2(self.compared.block.table)

    @cached_property
    def values(self) -> FloatArray:
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
            over_power_probability=_share_above(self.tdp_w[:, i], budgets.power_w),
            over_area_probability=_share_above(self.area_mm2[:, i], budgets.area_mm2),
        )

    @cached_property
    def _regrets(self) -> FloatArray:
        return regrets(self.values)

    @cached_property
    def _best(self) -> FloatArray:
        return best_probability(self.values)


def _range(values: FloatArray) -> tuple[float, float]:
    low, high = np.percentile(values, [_LOW, _HIGH])
    return float(low), float(high)


def _share_above(values: FloatArray, limit: float | None) -> float | None:
    """Share of scenarios above a budget, rounding aside; None without one."""
    return None if limit is None else float((values > limit * (1.0 + _ROUNDING)).mean())


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
