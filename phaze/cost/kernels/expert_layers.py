"""Layers of experts as serving engines run them on one device: routed rows, two grouped products, an activation.

Engines fuse what stands around the products in different ways, so that each way has constants of its own: libraries
of grouped kernels move the rows of the device's own experts (`FUSED`), Triton's kernels leave a place for every routed
row, whoever has its expert (`SCATTERED`), and kernels for weights in 4 bits unpack them on the way (`UNPACKED`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s
from phaze.workload.work import Gemm, Unit, Work

FUSED = "experts_fused"
SCATTERED = "experts_scattered"
UNPACKED = "experts_unpacked"

_ROW_BYTES = 2.0  # of an element of a row: 16 bits
_HIDDEN_MOVES = 3.0  # a row is gathered (read, written) and read to be summed
_INNER_MOVES = 3.0  # both halves of a gated activation are read, one is written


@dataclass(frozen=True, slots=True)
class ExpertLaw:
    """Constants of one way to run experts on chips of one family.

    `launch_s`: of all kernels. `stretch`: time of the grouped products over that of the law of products. `own_rows`,
    `all_rows`: share of the time that memory takes for the rows of the device's own experts, and for all routed rows
    read once. `route_s`: sorting one route of a token to an expert.
    """

    launch_s: float
    stretch: float
    own_rows: float
    all_rows: float
    route_s: float


def expert_layer(
    kind: str, routes: int, own_rows: float, up: Gemm, down: Gemm, *, gated: bool = True
) -> Work:
    """Experts of one device: of `routes` of tokens to experts, `own_rows` to its own, and products of all of these."""
    inner = (_INNER_MOVES if gated else _INNER_MOVES - 1) * down.k
    moved = _ROW_BYTES * own_rows * (_HIDDEN_MOVES * up.k + inner)
    return Work(kind, kind, Unit.TENSOR_VECTOR, gemms=(up, down), stream_bytes=moved, rows=routes)


def expert_layers_s(
    works: Sequence[Work], products_s: Floats, chip: ArchitectureTable, law: ExpertLaw
) -> Floats:
    """Seconds of each layer on a chip, a table of one, (O,); `products_s` (O,): of its products alone."""
    memory = float(hbm_bandwidth_bytes_per_s(chip)[0])
    routes = np.array([work.rows for work in works], dtype=np.float64)
    own = np.array([work.stream_bytes for work in works]) / memory
    every = _ROW_BYTES * routes * [work.gemms[0].k for work in works] / memory
    rows: Floats = law.own_rows * own + law.all_rows * every + law.route_s * routes
    return law.launch_s + law.stretch * products_s + rows


def busiest_rows(tokens: int, experts: int, chosen: int, ranks: int, power: float | None) -> Floats:
    """Rows of every expert of the busiest of `ranks` devices, largest first, for tokens with `chosen` experts each.

    `power`: exponent of the power law that loads are drawn from, between one row and 0.8 of the tokens; None, evenly.
    The draws are the quantiles; the busiest device has the most wanted expert, and of the others an even choice.
    """
    own, routes = max(1, experts // ranks), float(tokens * chosen)
    if power is None:
        return np.full(own, routes / experts)
    most, shape = max(1.0001, 0.8 * tokens), 1 - power
    quantiles = (np.arange(experts, 0, -1) - 0.5) / experts
    drawn = most**quantiles if shape == 0 else ((most**shape - 1) * quantiles + 1) ** (1 / shape)
    for _ in range(2):  # nobody gets a token twice
        drawn = np.minimum(tokens, drawn / drawn.sum() * routes)
    if ranks == 1 or own == 1:
        top: Floats = drawn[:own]
        return top
    others = np.linspace(1, experts - 1, own - 1).round().astype(np.intp)
    return np.concatenate([drawn[:1], drawn[others]])


def experts_hit(rows: Floats) -> int:
    """Experts with a row at all, where `rows` are expected ones and tokens choose by chance."""
    return max(1, int(np.round(np.sum(-np.expm1(-rows)))))
