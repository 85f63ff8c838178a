"""What every placement of a basis spends at least, whatever degrees and cuts it chooses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from phaze.placement.basis import Basis
from phaze.placement.energy import Drivers

FloatArray = NDArray[np.float64]
_ROUNDING = 1e-9  # a stage that exceeds the memory by less may count as fitting (placement checker)


def least_drivers(basis: Basis) -> Drivers:
    """Least drivers of the energy of any plan, its time aside (0), for one architecture.

    Fewest pipelines, the smallest tensors of as many cuts as the fewest stages need, and recomputation only
    where no last stage can do without.
    """
    roomy = basis.roomy
    cuts = int(roomy.stages.min(initial=len(basis.index))) - 1
    outputs = np.sort([basis.chain.layers[unique].output_bytes for unique in basis.index[:-1]])
    recomputed = np.bincount(basis.index[: _surely_recomputed(basis)], minlength=len(basis.chain.layers))
    return Drivers(
        recomputed[None].astype(np.float64),
        np.array([roomy.data_parallel.min(initial=basis.cluster.devices)], dtype=np.float64),
        np.array([outputs[:cuts].sum()]),
        np.zeros(1),
    )


def _surely_recomputed(basis: Basis) -> int:
    """How many layers from the first one recompute in every plan.

    Only the last stage may keep its activations, if they fit; a stage that begins earlier needs more memory.
    """
    memory = basis.memory
    if not memory.recompute:
        return 0
    kept = _from_here_on(memory.static_bytes + memory.saved_bytes)
    working = np.maximum.accumulate(memory.working_bytes[::-1])[::-1]
    return int(np.argmax(np.append(kept + working <= memory.memory_bytes * (1 + _ROUNDING), True)))


def _from_here_on(values: FloatArray) -> FloatArray:
    """Sums of each value and all after it."""
    sums: FloatArray = np.cumsum(values[::-1])[::-1]
    return sums


def least_peak_bytes(basis: Basis, precision: float = 1e-3) -> float:
    """At most the peak memory of any plan, whatever the capacity; by at most `precision` below what degrees allow.

    Where short batches hold fewer microbatches than a pipeline is deep, one is counted.
    """
    memory, o, deepest = basis.memory, basis.options, basis.most_held
    low, last = 0.0, len(basis.index) - 1
    high = max(memory.peak_bytes(0, last, deepest, recompute=redo) for redo in (False, True))
    while high - low > precision * high:
        middle = 0.5 * (low + high)
        fits = replace(memory, memory_bytes=middle, _limits={})
        low, high = (low, middle) if (o.stages >= basis.fewest_stages(fits)).any() else (middle, high)
    return low
