"""The designs that are compared, and their throughput in every scenario under the best placement there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.explore.evaluation.best_points import fastest_s, shortlist
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.parameter_scaling import scaled_chips, scaled_network
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_progress import Clock, Progress
from phaze.explore.robustness.constant_scenarios import Scenarios
from phaze.explore.robustness.near_optimal_designs import NearOptimal
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import (
    hbm_bandwidth_bytes_per_s,
    hbm_capacity_bytes,
    macs,
    narrow_speed,
    vector_alus,
)
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES
from phaze.workload.work import Format

SETTINGS_WITHIN = 1.25  # configs further from a design's best than this factor are not tried again
_PATIENCE_S = 3600.0  # schedules are limited by states, which is reproducible, not by time
_LINK = "link_bandwidth_bytes_per_s"


@dataclass(frozen=True)
class ComparedDesigns:
    """Designs, best first: their hardware, throughput (M,) at the model's constants, how many are like each (M,)."""

    block: Block
    throughput: Floats
    alike: NDArray[np.int64]


def distinct_designs(candidates: Candidates, near: NearOptimal, most: int) -> ComparedDesigns:
    """The best of each kind of near-optimal design, at most so many.

    Designs with as many multiply-accumulate units and lanes, the same memories, links and clock are of one kind.
    """
    block = candidates.within(near.numbers)
    _, first, kind, count = np.unique(
        _units(block.table), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    chosen = np.sort(first)[:most]
    kept = Block(block.numbers[chosen], block.table.take(chosen), block.tdp_w[chosen], block.area_mm2[chosen])
    return ComparedDesigns(kept, near.throughput[chosen], count[kind.ravel()[chosen]])


def scenario_throughput(
    task: Task,
    compared: ComparedDesigns,
    scenarios: Scenarios,
    progress: Progress,
    enough: Callable[[int], bool] = lambda _: False,
) -> tuple[Rows, Floats]:
    """Samples per second in every scenario, (N, M), over the configs that come near the best without it.

    With the scenarios themselves, (N,) numbers: before each network `enough` is asked of how many are known, which
    it is never of none; those of other networks are left out.
    """
    effort = SolveLimits(Clock(_PATIENCE_S).left, FEW_STATES)
    table, batch = compared.block.table, task.cluster.global_batch
    nominal = Evaluator(task, table)
    configs = shortlist(nominal, np.arange(len(table)), batch / compared.throughput, SETTINGS_WITHIN)
    found = np.empty((scenarios.count, len(table)))
    known = np.zeros(scenarios.count, dtype=bool)
    for network in np.unique(scenarios.network_of):
        if known.any() and enough(int(known.sum())):
            break
        here = np.flatnonzero(scenarios.network_of == network)
        progress.update(
            "scenarios", int(network), int(scenarios.network_of.max()) + 1, f"{len(table)} designs"
        )
        variants = _evaluator(nominal, scenarios, here)
        first = len(table) * np.arange(len(here))[:, None]
        rows = {config: (first + at).ravel() for config, at in configs.items()}
        found[here] = (batch / fastest_s(variants, rows, effort)).reshape(len(here), -1)
        known[here] = True
    return np.flatnonzero(known), found[known]


def _evaluator(nominal: Evaluator, scenarios: Scenarios, here: Rows) -> Evaluator:
    """All designs under the constants of scenarios of one network, scenario by scenario."""
    count = len(nominal.table)
    chip = {name: np.repeat(values[here], count) for name, values in scenarios.of("chip").items()}
    table = scaled_chips(nominal.table.take(np.tile(np.arange(count), len(here))), chip)
    network = {name: float(values[here[0]]) for name, values in scenarios.of("network").items()}
    if not network:
        return nominal.on(table)
    return Evaluator(replace(nominal.task, network=scaled_network(nominal.task.network, network)), table)


def _units(table: ArchitectureTable) -> Floats:
    """Figures in which designs of one kind agree, (A, 9)."""
    return np.stack(
        [
            macs(table),
            narrow_speed(table, Format.FP8),
            narrow_speed(table, Format.FP4),
            vector_alus(table),
            np.asarray(table["global_buffer_bytes"], dtype=np.float64),
            hbm_bandwidth_bytes_per_s(table),
            hbm_capacity_bytes(table),
            np.asarray(table[_LINK], dtype=np.float64),
            np.asarray(table["clock_hz"], dtype=np.float64),
        ],
        axis=1,
    )
