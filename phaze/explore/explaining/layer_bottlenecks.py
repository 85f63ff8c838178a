"""Bottlenecks of every layer: its critical chain of operators, each second given to the resource that sets it.

The chain is walked back from the operator that ends last, each time to one that ends when the next can start. An
operator's time is the fill of the arrays and, beyond it, that of its slowest resource; where the bytes of the
pass take longer than its schedule, the rest is that memory's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter

import numpy as np

from phaze.arrays import Floats
from phaze.cost.cost_model import Attribution
from phaze.explore.documents.explanation_document import LayerBottleneck
from phaze.explore.evaluation.evaluator import FoundPlan
from phaze.explore.evaluation.planned_iteration import estimator_of
from phaze.explore.explaining.explained_winner import ExplainedWinner
from phaze.parallel.training.memory.memory_footprint import recomputed_groups
from phaze.scheduling.passes import SolveLimits, TimedPass, schedule_problem
from phaze.solvers.scheduling import ScheduleResult, schedule
from phaze.tolerances import SAME
from phaze.workload.work import Pass

_ONE = np.array([0])
CAUSES = ("compute", "global_buffer", "hbm", "link", "fill")


def layer_bottlenecks(winner: ExplainedWinner) -> list[LayerBottleneck]:
    """Every unique layer and direction under the winner's best placement, those that take most time first."""
    timed = winner.evaluator.timed(winner.config)
    runs = executions(winner, timed.chain.index)
    found = [
        (layer.kind, direction, runs[direction, unique], *time_parts(passes[unique], winner.effort))
        for direction, passes in (("forward", timed.forward), ("backward", timed.backward))
        for unique, layer in enumerate(timed.chain.layers)
        if passes[unique].work.works
    ]
    total = sum(count * sum(parts.values()) for _, _, count, parts, _ in found)
    rows = []
    for kind, direction, count, parts, path in found:
        time_s = sum(parts.values())
        rows.append(
            LayerBottleneck(
                layer=kind,
                direction=direction,
                count=count,
                time_s=time_s,
                share_of_layers=count * time_s / total,
                waiting=max(0.0, 1.0 - path / time_s),
                **{cause: seconds / time_s for cause, seconds in parts.items()},
            )
        )
    return sorted(rows, key=lambda row: -row.share_of_layers)


def executions(winner: ExplainedWinner, index: tuple[int, ...]) -> Counter[tuple[str, int]]:
    """How often one microbatch goes through each (direction, unique layer), recomputation included."""
    count: Counter[tuple[str, int]] = Counter()
    for unique, again in zip(index, _again(winner), strict=True):
        count["forward", unique] += 2 if again else 1
        count["backward", unique] += 1
    return count


def _again(winner: ExplainedWinner) -> Iterator[bool]:
    """Of every layer of the chain, whether its forward pass runs again."""
    plan = winner.plan
    if isinstance(plan, FoundPlan):
        costs = estimator_of(winner.task, winner.table, winner.config.recipe)
        division = costs.division(plan.strategy)
        yield from np.repeat(recomputed_groups(division, plan.strategy), division.sizes).tolist()
        return
    for stage in plan.stages:
        yield from [stage.recompute] * (stage.last + 1 - stage.first)


def time_parts(timed: TimedPass, effort: SolveLimits) -> tuple[dict[str, float], float]:
    """Seconds by cause of a pass on the first architecture of its table, and its critical path in s.

    The former sum to the time of the pass.
    """
    latencies = timed.costs.latencies(_ONE)
    cores = {unit: int(count[0]) for unit, count in timed.capacity(_ONE).items()}
    limit = None if math.isinf(effort.states) else int(effort.states)
    result = schedule(
        schedule_problem(timed.work, latencies, 0, cores), time_limit_s=effort.left_s(), state_limit=limit
    )
    parts = dict.fromkeys(CAUSES, 0.0)
    for cause, seconds in _chain(timed.costs.attribution(_ONE), result):
        parts[cause] += seconds
    floors = {"hbm": float(latencies.hbm_s[0]), "global_buffer": float(latencies.buffer_s[0])}
    memory = max(floors, key=lambda name: floors[name])
    parts[memory] += max(0.0, floors[memory] - sum(parts.values()))
    return parts, path_s(timed.work, np.minimum(latencies.single_s[0], latencies.parallel_s[0]))


def _chain(attribution: Attribution, result: ScheduleResult) -> Iterator[tuple[str, float]]:
    """(cause, seconds) along a critical chain, from its end; they sum to the makespan."""
    close = result.makespan_s * SAME
    spans = {
        o: (result.starts_s[o], end) for o, end in result.ends_s.items() if end > result.starts_s[o] + close
    }
    now = result.makespan_s
    while now > close:
        done = [o for o, (_, end) in spans.items() if end <= now + close]
        if not done:
            break
        last = max(done, key=lambda o: spans[o][1])
        start, end = spans.pop(last)
        yield from _causes(attribution, int(last), end - start)
        now = start


def _causes(attribution: Attribution, operator: int, time_s: float) -> Iterator[tuple[str, float]]:
    """Parts of one operator's time; compute in whichever mode, as nothing else depends on the mode."""
    fill = float(attribution.fill_s[0, operator])
    off = {
        "global_buffer": float(attribution.buffer_s[0, operator]),
        "hbm": float(attribution.hbm_s[0, operator]),
        "link": float(attribution.link_s[0, operator]),
    }
    slowest = max(off, key=lambda name: off[name])
    yield "fill", fill
    yield slowest if time_s - fill <= off[slowest] * (1 + SAME) else "compute", time_s - fill


def path_s(work: Pass, latency_s: Floats) -> float:
    """Length in s of the longest path of operators."""
    before: dict[int, list[int]] = {operator: [] for operator in range(len(work.works))}
    for first, second in work.edges:
        before[second].append(first)
    ends = np.zeros(len(before))
    for operator in TopologicalSorter(before).static_order():
        ends[operator] = latency_s[operator] + max((ends[p] for p in before[operator]), default=0.0)
    return float(ends.max())
