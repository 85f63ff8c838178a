"""Totals of a workload: parameters, FLOPs and bytes per operator kind and per layer kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from phaze.workload.operators.operator_graph import OperatorGraph
from phaze.workload.training.backward_pass import model_parameters
from phaze.workload.work import Layer, LayerChain, Pass, Traffic, Work
from phaze.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over operators of one microbatch, forward and (in training) backward.

    `operators` are those left after fusion. `flops`: multiply and add of matrix products and convolutions.
    `vector_cycles`: fp32-ALU cycles of all other arithmetic. `bytes`: what moves to and from HBM when
    every operand is read once and every result written once; a small global buffer adds re-reads.
    """

    operators: int = 0
    parameters: int = 0
    flops: float = 0.0
    vector_cycles: float = 0.0
    bytes: float = 0.0

    @property
    def arithmetic_intensity(self) -> float | None:
        """FLOPs per byte; None where nothing moves."""
        return self.flops / self.bytes if self.bytes else None

    def __add__(self, other: Totals) -> Totals:
        """Sum of both."""
        return Totals(
            self.operators + other.operators,
            self.parameters + other.parameters,
            self.flops + other.flops,
            self.vector_cycles + other.vector_cycles,
            self.bytes + other.bytes,
        )

    def times(self, count: int) -> Totals:
        """Totals `count` times."""
        return Totals(
            self.operators * count,
            self.parameters * count,
            self.flops * count,
            self.vector_cycles * count,
            self.bytes * count,
        )


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers of one kind: how many, how many of them differ, their sums, and what they keep for backward."""

    layers: int
    unlike: int
    totals: Totals
    saved_bytes: float


@dataclass(frozen=True, slots=True)
class Overview:
    """A workload at one microbatch size on one device.

    `whole` counts every parameter once, `layer_kinds` in every layer that reads it.
    """

    microbatch: int
    layers: int
    whole: Totals
    operator_kinds: Mapping[str, Totals]
    layer_kinds: Mapping[str, LayerKind]


def overview(workload: Workload, microbatch: int = 1) -> Overview:
    """Figures of the whole model, largest kinds first."""
    chain = workload.chain(microbatch, 1)
    counts = Counter(chain.index)
    kinds = _operator_kinds(chain, counts)
    for kind, count in _parameter_readers(workload.operator_graph(microbatch)).items():
        kinds[kind] = kinds.get(kind, Totals()) + Totals(parameters=count)
    by_layer = _layer_kinds(chain, counts)
    return Overview(
        microbatch,
        len(chain.index),
        sum(kinds.values(), Totals()),
        dict(sorted(kinds.items(), key=lambda item: _size(item[1]))),
        dict(sorted(by_layer.items(), key=lambda item: _size(item[1].totals))),
    )


def work_bytes(work: Work) -> float:
    """HBM bytes of an operator: operands read once, results written once."""
    tiled = (g for g in work.gemms if g.traffic is Traffic.TILED)
    return work.stream_bytes + sum(g.a_bytes + g.b_bytes + g.c_bytes for g in tiled)


def totals_of(works: Iterable[Work]) -> Totals:
    """Sums over operators; they own no parameters."""
    return sum((_of_work(work) for work in works), Totals())


def layer_totals(layer: Layer) -> Totals:
    """Sums over both passes of a layer, with its parameters."""
    works = (work for half in passes(layer) for work in half.works)
    return totals_of(works) + Totals(parameters=layer.parameters)


def passes(layer: Layer) -> tuple[Pass, ...]:
    """Forward, and backward where there is one."""
    return (layer.forward,) if layer.backward is None else (layer.forward, layer.backward)


def _of_work(work: Work) -> Totals:
    return Totals(1, 0, 2.0 * work.macs, work.vector_cycles, work_bytes(work))


def _operator_kinds(chain: LayerChain, counts: Mapping[int, int]) -> dict[str, Totals]:
    """Sums per operator kind over the whole chain; a fused operator counts under what it is fused into."""
    found: dict[str, Totals] = {}
    for number, count in counts.items():
        for half in passes(chain.layers[number]):
            for work in half.works:
                found[work.kind] = found.get(work.kind, Totals()) + _of_work(work).times(count)
    return found


def _parameter_readers(graph: OperatorGraph) -> dict[str, int]:
    """Trained parameter elements by the kind of the first operator that reads them."""
    left = {tensor.name: tensor.elements for tensor in model_parameters(graph)}
    found: Counter[str] = Counter()
    for op in graph.operators:
        for name in op.inputs:
            found[op.kind.value] += left.pop(name, 0)
    return {kind: count for kind, count in found.items() if count}


def _layer_kinds(chain: LayerChain, counts: Mapping[int, int]) -> dict[str, LayerKind]:
    found: dict[str, LayerKind] = {}
    for number, count in counts.items():
        layer = chain.layers[number]
        before = found.get(layer.kind, LayerKind(0, 0, Totals(), 0.0))
        found[layer.kind] = LayerKind(
            before.layers + count,
            before.unlike + 1,
            before.totals + layer_totals(layer).times(count),
            before.saved_bytes + layer.saved_bytes * count,
        )
    return found


def _size(totals: Totals) -> tuple[float, float]:
    """Sorts by FLOPs, then bytes, largest first."""
    return -totals.flops, -totals.bytes
