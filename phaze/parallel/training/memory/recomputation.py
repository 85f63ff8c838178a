"""Recomputation: operators of a forward pass that run again for the backward pass, under full recompute."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import numpy as np

from phaze.arrays import Flags
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.parallel_degrees import Parallel
from phaze.workload.work import Collective, Layer, LayerChain, Pass, Unit, Work


def runs_again(pass_: Pass, kept: Set[str], *, ends: bool, prunes: bool) -> Flags:
    """Operators that run again, (O,), where the results of those named in `kept` are not lost.

    Without a compiler that `prunes`, all others. With one, those of them whose result backward reads, or something
    that runs again. Sums and collectives do not need their operands in backward, so that where a layer `ends` what
    is recomputed, the product before its residual sum does not run.
    """
    works = pass_.works
    lost = np.array([not has_name(work, kept) for work in works], dtype=np.bool_)
    if not prunes:
        return lost
    after: list[list[int]] = [[] for _ in works]
    for first, second in pass_.edges:
        after[first].append(second)
    recomputed = np.zeros(len(works), dtype=np.bool_)
    for i in reversed(range(len(works))):
        read = not after[i] and not ends
        for j in after[i]:
            read |= bool(recomputed[j]) or not _passes_on(works[j])
        recomputed[i] = lost[i] and read
    return recomputed


ADAPTED = frozenset({"qkv", "projection"})
"""Products of attention, beside which adapters of low rank are trained (Hu et al., LoRA, arXiv 2106.09685, section 4.2,
and the rules of MLPerf's Llama 2 70B)."""

_BYTES = 2.0
_FORWARD = (3.0, 4.0)
"""Times that adapters move the operand and the result of their product forward: a dropped-out copy is written and read;
the product with the wide side is written, read and added to the result, which is read and written."""
_BACKWARD = (7.0, 2.0)
"""The same backward: the copy for the gradient of one side, what comes back written, dropped out and added; the
gradient read for each side."""


def with_adapters_only(chain: LayerChain) -> LayerChain:
    """The chain whose weights are frozen, so that no product makes their gradients, but for adapters of low rank.

    Their products have one side of some 16, so that they take the time of their operands' traffic.
    """
    return replace(chain, layers=tuple(_with_adapters_only(layer) for layer in chain.layers))


def _with_adapters_only(layer: Layer) -> Layer:
    if layer.backward is None:
        return layer
    forward = layer.forward
    adapters = {
        f"{_first(work)}.dW": work for work in forward.works if has_name(work, ADAPTED) and work.gemms
    }
    for place, work in enumerate(layer.forward.works):
        if has_name(work, ADAPTED) and work.gemms:
            forward = _beside(forward, place, _adapter(work, "adapter", _FORWARD))
    works = tuple(
        _adapter(adapters[work.name], "adapter.dX", _BACKWARD) if work.name in adapters else work
        for work in layer.backward.works
    )
    making = {i for i, work in enumerate(works) if work.makes_weight_gradient}
    return replace(layer, forward=forward, backward=_without(replace(layer.backward, works=works), making))


def _adapter(product: Work, name: str, times: tuple[float, float]) -> Work:
    """Traffic of an adapter beside a product, by how often operand and result are moved."""
    rows = sum(g.groups * g.m * (times[0] * g.k + times[1] * g.n) for g in product.gemms)
    return Work(
        f"{_first(product)}.{name}",
        OpKind.ELEMENTWISE,
        Unit.VECTOR,
        vector_cycles=rows,
        stream_bytes=_BYTES * rows,
    )


def _beside(pass_: Pass, place: int, work: Work) -> Pass:
    """The pass with one more operator, which waits for and is waited for by what the one at a place is."""
    new = len(pass_.works)
    edges = tuple(
        (new if a == place else a, new if b == place else b) for a, b in pass_.edges if place in (a, b)
    )
    return replace(pass_, works=(*pass_.works, work), edges=(*pass_.edges, *edges))


def _first(work: Work) -> str:
    """Name of the first of the operators that were fused."""
    return work.name.split("+")[0]


def with_copies(chain: LayerChain, *, gathered: bool, gates: bool) -> LayerChain:
    """The chain where more is kept for backward than it needs: operands that tensor ranks gather, whole, so that
    backward does not gather them again; activated gates beside what gated units make of them.
    """
    layers = chain.layers
    if gathered:
        layers = tuple(_with_gathered(layer) for layer in layers)
    if gates:
        layers = tuple(replace(one, saved_bytes=one.saved_bytes + _gate_bytes(one)) for one in layers)
    return chain if layers is chain.layers else replace(chain, layers=layers)


def _with_gathered(layer: Layer) -> Layer:
    if layer.backward is None:
        return layer
    links = [(i, work.link) for i, work in enumerate(layer.backward.works) if _gathers_again(work)]
    more = sum(link.payload_bytes * (1 - 1 / link.group.size) for _, link in links if link is not None)
    backward = _without(layer.backward, {i for i, _ in links})
    return replace(layer, backward=backward, saved_bytes=layer.saved_bytes + more)


def _gate_bytes(layer: Layer) -> float:
    """Results of activation functions inside gated units, which read two tensors as large and write one."""
    return sum(w.stream_bytes / 3 for w in layer.forward.works if w.name.split("+")[0].endswith("glu"))


def _gathers_again(work: Work) -> bool:
    link = work.link
    if link is None or link.collective is not Collective.ALL_GATHER:
        return False
    return link.group.parallel is Parallel.TENSOR and work.name.endswith(".again")


def _without(pass_: Pass, dropped: Set[int]) -> Pass:
    """The pass without some operators that others are not held together by, by position."""
    place = {old: new for new, old in enumerate(i for i in range(len(pass_.works)) if i not in dropped)}
    edges = tuple((place[a], place[b]) for a, b in pass_.edges if a in place and b in place)
    return replace(pass_, works=tuple(pass_.works[i] for i in place), edges=edges)


def has_name(work: Work, names: Set[str]) -> bool:
    """Whether an operator, or the first of those fused to it, has one of the names."""
    return work.name.split("+")[0] in names


def _passes_on(work: Work) -> bool:
    """Whether the gradients of an operator that does not run again need none of its operands: collectives and sums.

    No block ends with another element-wise operator than sums and dropout.
    """
    return work.unit is Unit.LINK or (work.kind == OpKind.ELEMENTWISE and not work.gemms)
