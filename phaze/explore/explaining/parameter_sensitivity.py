"""Effect of ten per cent more or less of each physical parameter on throughput, placement chosen anew."""

from __future__ import annotations

import math

import numpy as np

from phaze.explore.documents.explanation_document import Sensitivity
from phaze.explore.evaluation.best_points import fastest_s, shortlist
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.parameter_scaling import (
    CHIP,
    NETWORK,
    network_parameters,
    scaled_chips,
    scaled_network,
)
from phaze.explore.explaining.explained_winner import ExplainedWinner
from phaze.hardware.architecture_table import ArchitectureTable

STEP = 0.1


def sensitivity(winner: ExplainedWinner) -> list[Sensitivity]:
    """Every parameter, budgets aside, the largest elasticity first."""
    chip = _chip_throughputs(winner)
    rows = [_row(winner, name, CHIP[name].description, *chip[name]) for name in CHIP]
    rows += [
        _row(winner, name, NETWORK[name], *_network_throughputs(winner, name))
        for name in network_parameters(winner.task.network)
    ]
    return sorted(rows, key=lambda row: (-_steepness(row), row.parameter))


def elasticity(less: float, more: float, step: float = STEP) -> float | None:
    """d ln throughput / d ln parameter between (1 - step) and (1 + step); None where nothing fits with less."""
    return math.log(more / less) / math.log((1 + step) / (1 - step)) if less > 0 else None


def _steepness(row: Sensitivity) -> float:
    return math.inf if row.elasticity is None else abs(row.elasticity)


def _row(winner: ExplainedWinner, name: str, text: str, less: float, more: float) -> Sensitivity:
    return Sensitivity(
        parameter=name,
        description=text,
        throughput_less_samples_per_s=less,
        throughput_more_samples_per_s=more,
        step=STEP,
        gain=more / winner.throughput - 1.0,
        elasticity=elasticity(less, more),
    )


def _chip_throughputs(winner: ExplainedWinner) -> dict[str, tuple[float, float]]:
    """Throughput with less and with more of each, all variants in one table."""
    variants: list[ArchitectureTable] = []
    for name in CHIP:
        variants += [
            scaled_chips(winner.table, {name: np.array([factor])}) for factor in (1 - STEP, 1 + STEP)
        ]
    fields = winner.table.columns
    table = ArchitectureTable({field: np.concatenate([v[field] for v in variants]) for field in fields})
    found = winner.throughputs(table).reshape(-1, 2)
    return {name: (float(less), float(more)) for name, (less, more) in zip(CHIP, found, strict=True)}


def _network_throughputs(winner: ExplainedWinner, name: str) -> tuple[float, float]:
    """Throughput with less and with more of a field of the network, over the configs that can be best."""
    best_s = np.array([winner.plan.iteration_s])
    configs = shortlist(winner.evaluator, np.array([0]), best_s, 1 / (1 - STEP))
    less, more = (
        fastest_s(
            Evaluator(winner.on(scaled_network(winner.task.network, {name: factor})), winner.table),
            configs,
            winner.effort,
        )[0]
        for factor in (1 - STEP, 1 + STEP)
    )
    return winner.task.cluster.global_batch / float(less), winner.task.cluster.global_batch / float(more)
