"""The question that a request puts to the certified search: its axes, its objective, and what proofs of it speak of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from phaze.arrays import Floats
from phaze.explore.certified.search_state import Outcome, Reached
from phaze.explore.documents.result_document import Design, OwnOptimum
from phaze.explore.documents.result_manifest import scope
from phaze.explore.evaluation.sample_costs import cost_columns
from phaze.explore.frontier.search_axes import SearchAxes, maximised
from phaze.explore.request.common_score import CombinedScore
from phaze.explore.request.design_metrics import Metric, metric
from phaze.explore.request.explore_request import ExploreRequest, Task, axes_of
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.economics.package_price import price_usd
from phaze.hardware.spaces.clock_steps import CLOCK


def search_axes(request: ExploreRequest) -> SearchAxes:
    """The axes of the frontier that is searched: what leads, and power, unless others are asked for."""
    if request.over_axes:
        return SearchAxes(tuple(axes_of(request)))
    return SearchAxes((metric("score" if request.others else "throughput"), metric("tdp")))


def fastest_axes() -> SearchAxes:
    """The axis of a search for the highest throughput alone."""
    return SearchAxes((metric("throughput"),))


def worth(objective: Metric, columns: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a number or an array of them
    """The objective of columns, or of one row, as certificates tell it."""
    return maximised(objective, objective.of(columns))


def worth_of(objective: Metric, axes: SearchAxes, found: Reached) -> float:
    """The objective of what is reached; 0 where it is below a floor."""
    if found.lead <= 0:
        return 0.0
    return float(hoped_worth(objective, axes, np.array([found.others]), np.array([found.lead]))[0])


def hoped_worth(objective: Metric, axes: SearchAxes, others: Floats, lead: Floats) -> Floats:
    """The objective of values on the axes, (A,)."""
    if not len(lead):
        return np.zeros(0)
    return np.asarray(worth(objective, axes.figures(others.reshape(len(lead), -1), lead)), dtype=np.float64)


def best_kept(axes: SearchAxes, objective: Metric, outcome: Outcome, alone: Outcome) -> Outcome:
    """An outcome where no undecided point is better in the objective than a search for that alone leaves possible."""
    others, lead = outcome.undecided
    if axes.leader == objective:
        return replace(outcome, undecided=(others, np.minimum(lead, alone.most)))
    least = (-1.0 if objective.maximise else 1.0) * maximised(objective, alone.most)
    column = axes.others.index(objective)
    kept = others.copy()
    kept[:, column] = np.maximum(kept[:, column], least)
    return replace(outcome, undecided=(kept, lead))


def design_columns(design: Design, task: Task, rule: CombinedScore | None = None) -> dict[str, float]:
    """Figures of a design that is reported as columns of a design table; its score where there is a `rule`."""
    table = to_table([Architecture(name=design.id, fields=design.architecture)])
    price = float(price_usd(table, np.array([design.area_mm2]), task.economics)[0])
    known = {"tdp_w": design.tdp_w, "area_mm2": design.area_mm2, "price_usd": price}
    results = list(design.workloads.values())
    if rule is not None:
        speeds = np.array([[result.throughput_samples_per_s] for result in results])
        return {**known, "score": float(rule.score(speeds)[0])}
    (result,) = results
    return {
        **known,
        "throughput_samples_per_s": result.throughput_samples_per_s,
        "mfu": result.mfu,
        "energy_per_sample_j": result.energy_per_iteration_j / result.global_batch,
        "memory_bytes": result.memory_bytes,
        **{name: np.inf if value is None else value for name, value in cost_columns(result.cost).items()},
    }


def question_scope(
    request: ExploreRequest, rule: CombinedScore | None = None, own: Sequence[OwnOptimum] = ()
) -> list[str]:
    """The model's choices, the rule of several workloads and what it is relative to, and the axes."""
    tasks, names = request.tasks, [task.workload.name for task in request.tasks]
    told = [line for line in scope(tasks[0]) if all(line in scope(task) for task in tasks)]
    if rule is not None:
        weights = ", ".join(f"{n} {w:g}" for n, w in zip(names, rule.weights, strict=True))
        told.append(f"score {rule.combine.value} of {weights}")
        told.append("a point is an architecture under its best placement for every workload")
        told += [
            f"ratios of {name} to a design at most {100 * optimum.gap:.3g} % below its own optimum"
            for name, optimum in zip(names, own, strict=True)
            if optimum.gap > 0
        ]
    told += _clock_scope(request)
    if request.lean:
        return [*told, "memory is the least of any plan, which need not be the fastest"]
    if request.budgets.drawn_limit_w is not None:
        told.append("power is what a device draws under the fastest plan of each point")
    if request.over_axes:
        told.append(f"frontier of {', '.join(axis.name for axis in axes_of(request))}")
        if rule is None:
            told.append("energy, memory, cost and carbon are those of the fastest plan of each point")
    return told


def _clock_scope(request: ExploreRequest) -> list[str]:
    """That all designs have one clock, where a lower one, and its voltage, would leave power for more cores."""
    space, budgets = request.space, request.budgets
    varied = CLOCK in space.fields_varied or any(override.field == CLOCK for override in space.overrides)
    if varied or budgets.dvfs or budgets.power_w is None or budgets.drawn_limit_w is not None:
        return []
    clock = float(space.base.value(CLOCK) or 0.0)
    return [
        f"every design at one clock, {clock / 1e9:g} GHz (the space `default` varies it, and its voltage)"
    ]
