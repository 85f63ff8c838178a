"""What the laws of flash attention see of an operator and of a chip, as arrays over operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.cost.roofline import stays_cached
from phaze.hardware.derived import (
    hbm_bandwidth_bytes_per_s,
    peak_clock_hz,
    product_flops_per_s,
    vector_alus,
)
from phaze.hardware.table import ArchitectureTable
from phaze.workload.work import Flash, Format, Work

_FORWARD_PRODUCTS = 2  # scores and their weighted sum


class Bandwidths(Protocol):
    """Constants of a law on the way of tensors to the multiprocessors."""

    @property
    def memory_efficiency(self) -> float:
        """Share of the memory bandwidth that streams get."""
        ...

    @property
    def cache_bytes_per_cycle(self) -> float:
        """Bandwidth of the chip's cache per multiprocessor."""
        ...


@dataclass(frozen=True, slots=True)
class AttentionChip:
    """What the laws need of a chip, at its boost clock; ALUs are those of one multiprocessor."""

    multiprocessors: float
    clock_hz: float
    product_flop_per_s: float
    alus: float
    memory_bytes_per_s: float

    def stream_bytes_per_s(self, law: Bandwidths) -> float:
        """Of the memory, to kernels of a family."""
        return law.memory_efficiency * self.memory_bytes_per_s

    def cache_bytes_per_s(self, law: Bandwidths) -> float:
        """Of the cache, to kernels of a family; what comes from memory passes it, so it is no slower."""
        own = self.multiprocessors * self.clock_hz * law.cache_bytes_per_cycle
        return max(own, self.stream_bytes_per_s(law))


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Flash attentions, arrays of one length.

    `backward`: the pass; `cached`: all tensors are in the chip's cache. `heads`: query heads of all sequences;
    `share`: those that read one key-value head; `keys`: that a query may see, `visible` of which the mask leaves
    on average; `flop`, `cycles`: of all products and of element-wise work on the vector ALUs, per score;
    `key_value_bytes`: keys and values of one head (while decoding); `moved_bytes`: each tensor once;
    `staged_bytes`: of rearranging them before.
    """

    backward: NDArray[np.bool_]
    cached: NDArray[np.bool_]
    heads: Floats
    share: Floats
    queries: Floats
    keys: Floats
    visible: Floats
    flop: Floats
    cycles: Floats
    key_value_bytes: Floats
    moved_bytes: Floats
    staged_bytes: Floats


def attention_sizes(works: Sequence[Work], chip: ArchitectureTable) -> AttentionSizes:
    """Sizes of operators whose `flash` is set, on a chip, a table of one. Raises ValueError for any other."""
    figures = np.array([_figures(work) for work in works], dtype=np.float64).T
    backward = np.array([len(work.gemms) > _FORWARD_PRODUCTS for work in works])
    cached = np.array([bool(stays_cached(work, chip)[0]) for work in works])
    return AttentionSizes(backward, cached, *figures)


def decodes(work: Work) -> bool:
    """If a flash attention has one query per sequence, on a cache: forward, and nothing is to be rearranged before."""
    flash = _flash(work)
    return flash.queries == 1 and flash.staged_bytes == 0 and len(work.gemms) == _FORWARD_PRODUCTS


def _figures(work: Work) -> tuple[float, ...]:
    """One operator's figures, in the order of the fields from `heads` on."""
    flash, scores = _flash(work), work.gemms[0]
    number = scores.groups * scores.m * scores.n
    return (
        number / (flash.queries * scores.n),
        flash.share,
        flash.queries,
        scores.n,
        flash.visible,
        2.0 * work.macs / number,
        work.vector_cycles / number,
        (scores.b_bytes + work.gemms[1].b_bytes) / scores.groups,
        work.stream_bytes,
        flash.staged_bytes,
    )


def _flash(work: Work) -> Flash:
    if work.flash is None:
        msg = f"operator {work.name!r} is no flash attention"
        raise ValueError(msg)
    return work.flash


def attention_chip(chip: ArchitectureTable, operands: Format | None = None) -> AttentionChip:
    """The fields of a chip, a table of one, that the laws need; products on operands of a format."""
    multiprocessors = float(chip["vector_cores"][0])
    return AttentionChip(
        multiprocessors=multiprocessors,
        clock_hz=float(peak_clock_hz(chip)[0]),
        product_flop_per_s=float(product_flops_per_s(chip, operands)[0]),
        alus=float(vector_alus(chip)[0]) / multiprocessors,
        memory_bytes_per_s=float(hbm_bandwidth_bytes_per_s(chip)[0]),
    )
