"""One common design for several workloads: every workload's own optimum, then the common one, and the result
document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.errors import InfeasibleError, InputError, OutOfTimeError
from phaze.explore.answers.exploration import Answer, Exploration
from phaze.explore.certified.common_screening import CommonDesign
from phaze.explore.certified.common_search import CommonOutcome, PortfolioSearch
from phaze.explore.certified.search_state import Outcome, best_per_candidate
from phaze.explore.documents.result_document import (
    Certificate,
    Cross,
    Design,
    OwnOptimum,
    PortfolioReport,
    ResultDocument,
    ScorePoint,
    Share,
)
from phaze.explore.documents.result_manifest import describe_task, manifest, scope
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluation_oracle import Evaluation, Oracle
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.frontier.pareto_archive import Staircase
from phaze.explore.request.common_score import Combine, CombinedScore
from phaze.explore.request.explore_request import ExploreRequest, Objective, Task
from phaze.explore.request.objective_floor import Goal, below_floor, floor_throughput
from phaze.explore.request.search_progress import Clock, ClockShare, Progress, ReportingClock, SilentProgress
from phaze.explore.request.search_resources import ALONE, SearchResources
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES

SEEDS = 8  # designs of each frontier that are evaluated for the other workloads


@dataclass(frozen=True)
class WorkloadOptimum:
    """One workload's own optimum, the number of that design, and numbers of designs along its frontier."""

    optimum: OwnOptimum
    number: int
    seeds: tuple[int, ...]


def workload_optima(
    request: ExploreRequest, progress: Progress, clock: Clock, resources: SearchResources = ALONE
) -> tuple[WorkloadOptimum, ...]:
    """The certified search of every workload alone, in the same space and budgets.

    Each may take an even share of the time that is left, one more share being kept for the common design.
    Raises InfeasibleError, naming the workload, where it fits no architecture.
    """
    shares = range(len(request.tasks) + 1, 1, -1)
    return tuple(
        _own(request, task, progress, ClockShare(clock.left() / share, whole=clock), resources)
        for task, share in zip(request.tasks, shares, strict=True)
    )


def _own(
    request: ExploreRequest, task: Task, progress: Progress, clock: Clock, resources: SearchResources
) -> WorkloadOptimum:
    alone = replace(
        request,
        task=task,
        others=(),
        weights=(),
        objective=Objective.THROUGHPUT,
        min_throughput=None,
        max_latency_s=None,
    )
    exploration = Exploration(alone, progress, clock, resources)
    outcome = exploration.fastest_proof().outcome
    found = best_per_candidate(outcome.evaluated)
    designs = exploration.candidates.within(np.array(sorted(found), dtype=np.int64))
    throughput = np.array([found[number][0] for number in designs.numbers.tolist()])
    best = int(np.lexsort((designs.numbers, designs.area_mm2, designs.tdp_w, -throughput))[0])
    steps = Staircase()
    for row, number in enumerate(designs.numbers.tolist()):
        steps.add([designs.tdp_w[row]], throughput[row], (designs.area_mm2[row], number))
    number = int(designs.numbers[best])
    seeds = tuple(dict.fromkeys([number, *_spread([number for _, number in steps.keys])]))
    return WorkloadOptimum(
        _optimum(exploration.candidates, designs, best, throughput, outcome), number, seeds
    )


def _optimum(
    candidates: Candidates, designs: Block, best: int, throughput: Floats, outcome: Outcome
) -> OwnOptimum:
    reached = float(throughput[best])
    upper = max(reached, float(outcome.undecided[1].max(initial=0.0)))
    return OwnOptimum(
        id=candidates.architecture(int(designs.numbers[best])).name,
        throughput_samples_per_s=reached,
        upper_bound_samples_per_s=upper,
        gap=(upper - reached) / reached,
        area_mm2=float(designs.area_mm2[best]),
        tdp_w=float(designs.tdp_w[best]),
    )


def _spread(numbers: Sequence[int]) -> list[int]:
    """At most `SEEDS` of them at even steps, both ends among them."""
    if len(numbers) <= SEEDS:
        return list(numbers)
    return [numbers[i] for i in np.linspace(0, len(numbers) - 1, SEEDS).round().astype(int)]


@dataclass(frozen=True)
class PortfolioOutcome:
    """Findings of the searches of a portfolio: own optima, the rule made of them, seeds evaluated, the outcome."""

    request: ExploreRequest
    candidates: Candidates
    own: tuple[WorkloadOptimum, ...]
    rule: CombinedScore
    seeds: dict[int, Evaluation]
    outcome: CommonOutcome


def search_portfolio(
    request: ExploreRequest, progress: Progress, clock: Clock, resources: SearchResources = ALONE
) -> PortfolioOutcome:
    """The own optimum of every workload, then the common one."""
    weights = check_weights(request)
    own = workload_optima(request, progress, clock, resources)
    candidates = Candidates(request.space, request.budgets)
    rule = CombinedScore(
        request.combine,
        weights,
        tuple(o.optimum.throughput_samples_per_s for o in own),
        tuple(floor_throughput(request, task) for task in request.tasks),
    )
    oracle = Oracle(candidates, request.tasks, rule, clock, resources)
    progress.update("seeding", 0, 1, "each workload's frontier on the others")
    numbers = list(dict.fromkeys(n for o in own for n in o.seeds))
    seeds = dict(zip(numbers, oracle.evaluate(numbers), strict=True))
    anywhere = candidates.table(np.array(numbers[:1]))
    outcome = PortfolioSearch(
        candidates,
        [Evaluator(task, anywhere, memo=resources.memo) for task in request.tasks],
        rule,
        [o.optimum.upper_bound_samples_per_s for o in own],
        clock,
        progress,
        request.gap,
    ).run(seeds.values())
    if not outcome.evaluated:
        raise _nothing(request, own, outcome)
    return PortfolioOutcome(request, candidates, own, rule, seeds, outcome)


def check_weights(request: ExploreRequest) -> tuple[float, ...]:
    """One weight per workload. Raises InputError where names repeat or weights have no meaning."""
    names = [task.workload.name for task in request.tasks]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"workload {name!r} is given {names.count(name)} times; use --weight {name}=2")
    if request.weights and request.combine is Combine.WORST:
        raise InputError("weights have no meaning with --combine worst: the smallest ratio counts")
    weights = request.weights or (1.0,) * len(names)
    if len(weights) != len(names) or not all(0 < w < np.inf for w in weights):
        raise InputError(f"{len(names)} workloads need {len(names)} weights, each greater than zero")
    return weights


def _nothing(
    request: ExploreRequest, own: Sequence[WorkloadOptimum], outcome: CommonOutcome
) -> InfeasibleError | OutOfTimeError:
    for task, o in zip(request.tasks, own, strict=True):
        if o.optimum.upper_bound_samples_per_s < floor_throughput(request, task):
            return below_floor(request, task, o.optimum.throughput_samples_per_s)
    if outcome.finished:
        names = ", ".join(task.workload.name for task in request.tasks)
        return InfeasibleError(
            f"no architecture of space {request.space.name} within the budgets suits all of {names}; "
            "lower floors, more --devices or larger HBM stacks (--space) would help"
        )
    return OutOfTimeError("the time limit passed before any common design was evaluated; raise --time-limit")


NEXT_BEST = 5
REPORT_S = 10.0  # for schedules of what is reported; almost all are known already


def explore_portfolio(
    request: ExploreRequest,
    progress: Progress | None = None,
    clock: Clock | None = None,
    resources: SearchResources = ALONE,
) -> Answer:
    """The best common design for the workloads of a request, with a certificate and its regret on each.

    Raises InputError where two workloads have one name or weights do not fit
    the rule, InfeasibleError and OutOfTimeError as `explore` does.
    """
    timer = clock or Clock(request.time_limit_s)
    found = search_portfolio(request, progress or SilentProgress(), timer, resources)
    (progress or SilentProgress()).update("describing", 0, 1, "the common design and its regret")
    return describe_portfolio(found, timer)


def describe_portfolio(found: PortfolioOutcome, clock: Clock) -> Answer:
    """The result document and the design table of what was found."""
    return _Description(found, clock, datetime.now(UTC) - timedelta(seconds=clock.elapsed_s)).answer()


class _Description:
    """The result document of what was found."""

    def __init__(self, found: PortfolioOutcome, clock: Clock, started: datetime) -> None:
        self._found = found
        self._clock = clock
        self._started = started
        self._names = [task.workload.name for task in found.request.tasks]
        self._goal = Goal(found.request.objective)
        self._effort = SolveLimits(ReportingClock(clock, REPORT_S).left, FEW_STATES)
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

    def _design(self, common: CommonDesign) -> Design:
        """The design with a report of every workload."""
        architecture = self._found.candidates.architecture(common.number)
        table = self._found.candidates.table(np.array([common.number]))
        designs = [
            builder.placed(
                architecture,
                Evaluator(builder.task, table),
                0,
                config,
                builder.task.cluster.global_batch / throughput,
                self._effort,
            )
            for builder, config, throughput in zip(
                self._builders, common.configs, common.throughputs, strict=True
            )
        ]
        results = {name: result for design in designs for name, result in design.workloads.items()}
        return designs[0].model_copy(update={"workloads": results})

    def _as_described(self, common: CommonDesign, design: Design) -> CommonDesign:
        """The design with the throughputs of its report: better schedules may have been found where time was over."""
        found = tuple(design.workloads[name].throughput_samples_per_s for name in self._names)
        score = float(self._found.rule.score(np.array(found)[:, None])[0])
        return replace(common, throughputs=found, score=score)

    def _certificate(self, best: CommonDesign) -> Certificate:
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

    def _report(self, best: CommonDesign) -> PortfolioReport:
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

    def _cross(self, design: CommonDesign | Evaluation, winner_for: Sequence[str]) -> Cross:
        score = design.score if isinstance(design, CommonDesign) else design.value
        return Cross(
            id=self._found.candidates.architecture(design.number).name,
            winner_for=list(winner_for),
            score=score,
            throughputs_samples_per_s=dict(zip(self._names, design.throughputs, strict=True)),
            tdp_w=design.tdp_w,
            area_mm2=design.area_mm2,
        )

    def _step(self, common: CommonDesign) -> ScorePoint:
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
    """Request about several workloads, every default spelled out."""
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


def portfolio_scope(request: ExploreRequest, rule: CombinedScore, own: Sequence[OwnOptimum]) -> list[str]:
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
