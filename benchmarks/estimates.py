"""How many (architecture x operator) estimates a second, tile search included, and what they consist of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product

import batches
import numpy as np
from report import Report
from tables import duration, table
from timing import median_s

from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.hardware_factors import factor_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import load_space
from phaze.validation.scalesim.scalesim_cycles import Dataflow
from phaze.validation.scalesim.scalesim_stalls import Interfaces, stalled_run
from phaze.workload.work import Gemm

TARGET_PER_S = 2e6
"""Estimates a second on one core that the model is meant to reach."""

SPACES: Sequence[tuple[str, int]] = (("default", 4096), ("default", 65536), ("phaze", 4096), ("phaze", 29360))
_REPEATS = 7
_HEADERS = ("space", "architectures", "operators", "factoring", "costs", "gathering", "estimates per second")


@dataclass(frozen=True)
class Measured:
    """Median processor times in s of one space: distinct hardware, costs on it, and their gathering."""

    space: str
    architectures: int
    operators: int
    factor_s: float
    search_s: float
    gather_s: float
    estimates_per_s: float


def _measure(name: str, architectures: int) -> Measured:
    """GPT-3's distinct layers on evenly spread architectures of a space."""
    space, network, passes = load_space(name), load_network("default"), batches.passes()
    rows = np.linspace(0, space.size - 1, architectures, dtype=np.int64)
    chips, every = space.table(rows.tolist()), np.arange(architectures)
    factor_s = median_s(lambda: factor_table(chips, Fidelity.ANALYTIC), _REPEATS)

    def searched() -> list:
        model = CostModel(chips, network)
        return [model.costs(p) for p in passes]

    costs = searched()
    search_s = median_s(searched, _REPEATS)
    gather_s = median_s(lambda: [c.latencies(every) for c in costs], _REPEATS)
    estimates = architectures * batches.operators()
    per_s = estimates / (search_s + gather_s)
    return Measured(name, architectures, batches.operators(), factor_s, search_s - factor_s, gather_s, per_s)


def stalled_runs() -> tuple[int, float]:
    """(products, median processor time in s) of SCALE-Sim's stalled cycles, buffers of 16 KiB and 10 words a cycle."""
    sides = (1, 64, 200, 512)
    cases = [Gemm(1, m, k, n, 0.0, 0.0, 0.0) for m, k, n in product(sides, repeat=3)]
    narrow = Interfaces(16 * 1024, 10)

    def work() -> None:
        for gemm, flow in product(cases, Dataflow):
            stalled_run(flow, gemm, 32, 32, narrow)

    return len(cases) * len(Dataflow), median_s(work, _REPEATS)


def report() -> Report:
    """A table, its rows, and one sentence on SCALE-Sim."""
    found = [_measure(name, architectures) for name, architectures in SPACES]
    products, took = stalled_runs()
    text = (
        "# Estimates\n\n"
        "Latency of every operator of GPT-3's distinct layers (forward and backward, one device) on one core and on\n"
        "all cores of each architecture. Processor time of one process: architectures factored into distinct tensor,\n"
        "vector and memory sides; costs on these, the tile search included; gathered per architecture. Meant to be\n"
        f"above {TARGET_PER_S / 1e6:.0f} million.\n\n"
        f"{table(_HEADERS, [_cells(m) for m in found])}\n\n"
        f"Stalled cycles as SCALE-Sim counts them, 32 x 32 array, {products} products of up to 512 x 512 x 512:\n"
        f"{duration(took / products)} each.\n"
    )
    return Report("estimates", text, [*map(asdict, found), {"scalesim_products": products, "seconds": took}])


def _cells(measured: Measured) -> tuple[object, ...]:
    return (
        measured.space,
        f"{measured.architectures:,}",
        measured.operators,
        duration(measured.factor_s),
        duration(measured.search_s),
        duration(measured.gather_s),
        f"{measured.estimates_per_s / 1e6:.1f} million",
    )
