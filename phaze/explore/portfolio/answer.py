"""One common design for several workloads: from the request to the result document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.explore.designs import DesignBuilder
from phaze.explore.document import Certificate, Design, ResultDocument
from phaze.explore.evaluator import Evaluator
from phaze.explore.exploration import Answer
from phaze.explore.goal import Goal
from phaze.explore.manifest import describe_task, manifest, scope
from phaze.explore.means import ALONE, Means
from phaze.explore.portfolio.found import Found, search_portfolio
from phaze.explore.portfolio.incumbents import Common
from phaze.explore.portfolio.merit import Rule
from phaze.explore.portfolio.report import Cross, OwnOptimum, PortfolioReport, ScorePoint, Share
from phaze.explore.progress import Clock, Progress, Reporting, Silent
from phaze.explore.request import ExploreRequest, Task
from phaze.explore.strategies.oracle import Evaluation
from phaze.scheduling.passes import Effort

NEXT_BEST = 5
REPORT_S, FEW_STATES = 10.0, 500  # for schedules of what is reported; almost all are known already


def explore_portfolio(
    request: ExploreRequest,
    progress: Progress | None = None,
    clock: Clock | None = None,
    means: Means = ALONE,
) -> Answer:
    """The best common design for the workloads of a request, with a certificate and its regret on each.

    Raises InputError where two workloads have one name or weights do not fit
    the rule, InfeasibleError and OutOfTimeError as `explore` does.
    """
    timer = clock or Clock(request.time_limit_s)
    found = search_portfolio(request, progress or Silent(), timer, means)
    (progress or Silent()).update("describing", 0, 1, "the common design and its regret")
    return describe_portfolio(found, timer)


def describe_portfolio(found: Found, clock: Clock) -> Answer:
    """The result document and the design table of what was found."""
    return _Description(found, clock, datetime.now(UTC) - timedelta(seconds=clock.elapsed_s)).answer()


class _Description:
    """The result document of what was found."""

    def __init__(self, found: Found, clock: Clock, started: datetime) -> None:
        self._found = found
        self._clock = clock
        self._started = started
        self._names = [task.workload.name for task in found.request.tasks]
        self._goal = Goal(found.request.objective)
        self._effort = Effort(Reporting(clock, REPORT_S).left, FEW_STATES)
        margin = found.request.budgets.tdp_margin
        self._builders = [DesignBuilder(task, margin) for task in found.request.tasks]

    def answer(self) -> Answer:
        found, request = self._found, self._found.request
        ranked = sorted(
            found.outcome.evaluated.values(),
            key=lambda c: (-self._goal.value(c.score, c.tdp_w), c.tdp_w, c.area_mm2, c.number),
        )
        best = self._design(ranked[0])
        common = self._as_described(ranked[0], best)
        document = ResultDocument(
            request=describe_several(request, found.rule.weights),
            best=best,
            certificate=self._certificate(common),
            frontier=[],
            next_best=[self._design(common) for common in ranked[1 : NEXT_BEST + 1]],
            comparison=[],
            portfolio=self._report(common),
            manifest=manifest(self._started, self._clock.elapsed_s, request.seed),
        )
        return Answer(document, self._columns())

    def _design(self, common: Common) -> Design:
        """The design with a report of every workload."""
        architecture = self._found.candidates.architecture(common.number)
        table = self._found.candidates.table(np.array([common.number]))
        designs = [
            builder.placed(
                architecture,
                Evaluator(builder.task, table),
                0,
                setting,
                builder.task.cluster.global_batch / throughput,
                self._effort,
            )
            for builder, setting, throughput in zip(
                self._builders, common.settings, common.throughputs, strict=True
            )
        ]
        results = {name: result for design in designs for name, result in design.workloads.items()}
        return designs[0].model_copy(update={"workloads": results})

    def _as_described(self, common: Common, design: Design) -> Common:
        """The design with the throughputs of its report: better schedules may have been found where time was over."""
        found = tuple(design.workloads[name].throughput_samples_per_s for name in self._names)
        score = float(self._found.rule.score(np.array(found)[:, None])[0])
        return replace(common, throughputs=found, score=score)

    def _certificate(self, best: Common) -> Certificate:
        request, outcome, size = self._found.request, self._found.outcome, self._found.candidates.size
        value = self._goal.value(best.score, best.tdp_w)
        open_ = zip(outcome.open_score.tolist(), outcome.open_tdp_w.tolist(), strict=True)
        # A design that is better by less than the gap was of no interest, wherever it fell.
        least = value * (1.0 + self._found.request.gap)
        upper = max([least, *(self._goal.value(score, tdp) for score, tdp in open_)])
        evaluated = len(outcome.evaluated)
        return Certificate(
            optimal=upper <= value,
            objective=OBJECTIVES[self._found.request.objective.value],
            objective_value=value,
            upper_bound=upper,
            gap=(upper - value) / value,
            scope=portfolio_scope(request, self._found.rule, [own.optimum for own in self._found.own]),
            space_size=size,
            over_budget=size - outcome.within,
            pruned=outcome.within - evaluated,
            evaluated=evaluated,
            pruned_by=outcome.pruned_by,
            frontier_complete=outcome.finished,
        )

    def _report(self, best: Common) -> PortfolioReport:
        found, rule = self._found, self._found.rule
        shares = {
            name: Share(
                weight=weight,
                throughput_samples_per_s=throughput,
                ratio=throughput / own.optimum.throughput_samples_per_s,
                regret=1.0 - throughput / own.optimum.throughput_samples_per_s,
                own=own.optimum,
            )
            for name, weight, throughput, own in zip(
                self._names, rule.weights, best.throughputs, found.own, strict=True
            )
        }
        steps = [found.outcome.evaluated[number] for _, number in found.outcome.staircase.keys]
        return PortfolioReport(
            combine=rule.combine.value,
            score=best.score,
            workloads=shares,
            cross=[self._cross(best, ()), *self._winners()],
            frontier=[self._step(common) for common in steps],
        )

    def _winners(self) -> list[Cross]:
        """Every workload's own best design on all workloads; each design once."""
        numbers = dict.fromkeys(own.number for own in self._found.own)
        return [
            self._cross(
                self._found.seeds[number],
                [n for n, own in zip(self._names, self._found.own, strict=True) if own.number == number],
            )
            for number in numbers
        ]

    def _cross(self, design: Common | Evaluation, winner_for: Sequence[str]) -> Cross:
        score = design.score if isinstance(design, Common) else design.value
        return Cross(
            id=self._found.candidates.architecture(design.number).name,
            winner_for=list(winner_for),
            score=score,
            throughputs_samples_per_s=dict(zip(self._names, design.throughputs, strict=True)),
            tdp_w=design.tdp_w,
            area_mm2=design.area_mm2,
        )

    def _step(self, common: Common) -> ScorePoint:
        architecture = self._found.candidates.architecture(common.number)
        return ScorePoint(
            id=architecture.name,
            score=common.score,
            throughputs_samples_per_s=dict(zip(self._names, common.throughputs, strict=True)),
            tdp_w=common.tdp_w,
            area_mm2=common.area_mm2,
            architecture=dict(architecture.fields),
        )

    def _columns(self) -> dict[str, NDArray[Any]]:
        """Every evaluated design; one column of throughput per workload."""
        rows = [self._found.outcome.evaluated[n] for n in sorted(self._found.outcome.evaluated)]
        architectures = [self._found.candidates.architecture(c.number) for c in rows]
        throughput = {
            f"throughput_samples_per_s[{name}]": np.array([c.throughputs[w] for c in rows])
            for w, name in enumerate(self._names)
        }
        return {
            "id": np.array([a.name for a in architectures]),
            "score": np.array([c.score for c in rows]),
            **throughput,
            "tdp_w": np.array([c.tdp_w for c in rows]),
            "area_mm2": np.array([c.area_mm2 for c in rows]),
            **{f: np.array([a.value(f) for a in architectures]) for f in self._found.candidates.varied},
        }


def describe_several(request: ExploreRequest, weights: Sequence[float]) -> dict[str, Any]:
    """What was asked about several workloads, every default spelled out."""
    tasks: Sequence[Task] = request.tasks
    return {
        **describe_task(request.task),
        "workloads": [task.workload.name for task in tasks],
        "global_batch": {t.workload.name: t.cluster.global_batch for t in tasks},
        "combine": request.combine.value,
        "weights": list(weights),
        "power_w": request.budgets.power_w,
        "area_mm2": request.budgets.area_mm2,
        "tdp_margin": request.budgets.tdp_margin,
        "dvfs": request.budgets.dvfs,
        "space": request.space.name,
        "objective": request.objective.value,
        "time_limit_s": request.time_limit_s,
        "min_throughput_samples_per_s": request.min_throughput,
        "max_latency_s": request.max_latency_s,
        "gap": request.gap,
        "seed": request.seed,
    }


def portfolio_scope(request: ExploreRequest, rule: Rule, own: Sequence[OwnOptimum]) -> list[str]:
    """The model's choices, the rule, and what it is relative to."""
    tasks, names = request.tasks, [task.workload.name for task in request.tasks]
    common = [line for line in scope(tasks[0]) if all(line in scope(task) for task in tasks)]
    weights = ", ".join(f"{n} {w:g}" for n, w in zip(names, rule.weights, strict=True))
    loose = [
        f"ratios of {name} to a design at most {100 * optimum.gap:.3g} % below its own optimum"
        for name, optimum in zip(names, own, strict=True)
        if optimum.gap > 0
    ]
    points = "a point is an architecture under its best placement for every workload"
    return [*common, f"score {rule.combine.value} of {weights}", points, *loose]


OBJECTIVES = {"throughput": "score", "throughput_per_tdp": "score_per_tdp", "tdp": "tdp"}
