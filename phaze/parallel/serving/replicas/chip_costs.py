"""Architectures costed side by side: seconds and joules of attention, or of all else, in the layers of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from phaze.arrays import Floats
from phaze.cost.cost_model import CostModel
from phaze.cost.pass_energy import dynamic_j, pass_events
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.scheduling.layers import TimedChain
from phaze.scheduling.passes import SolveLimits, TimedPass
from phaze.tolerances import PASS_STATES
from phaze.workload.parallel_degrees import Group, Parallel
from phaze.workload.training.training_numerics import HALF_BYTES
from phaze.workload.work import Collective, Layer, LayerChain, Link, Pass, Unit, Work


@dataclass(frozen=True, slots=True)
class Line:
    """Values (G, ...) at ascending points (G,); between two points the straight line, outside none."""

    points: Floats
    values: Floats

    def at(self, where: ArrayLike) -> Floats:
        """The values at some places, (*where, ...). ValueError beyond the points."""
        x = np.asarray(where, dtype=np.float64)
        if x.size and not (self.points[0] <= x.min() and x.max() <= self.points[-1]):
            msg = f"{x.min():g} .. {x.max():g} is not within {self.points[0]:g} .. {self.points[-1]:g}"
            raise ValueError(msg)
        if len(self.points) == 1:
            return self.values[np.zeros(x.shape, dtype=np.intp)]
        left = np.clip(np.searchsorted(self.points, x, side="right") - 1, 0, len(self.points) - 2)
        width = self.points[left + 1] - self.points[left]
        share = ((x - self.points[left]) / width).reshape(x.shape + (1,) * (self.values.ndim - 1))
        found: Floats = self.values[left] * (1 - share) + self.values[left + 1] * share
        return found


def doublings(first: int, last: int) -> list[int]:
    """`first`, its doubles below `last`, and `last`."""
    found = []
    while first < last:
        found.append(first)
        first *= 2
    return [*found, last]


def is_attention(work: Work) -> bool:
    """Whether an operator looks at the key-value cache."""
    return work.flash is not None or work.of_cache


def without_attention(pass_: Pass) -> Pass:
    """The pass without its attention; what waited for it waits for what it waited for."""
    edges = set(pass_.edges)
    for gone in (i for i, work in enumerate(pass_.works) if is_attention(work)):
        before = [a for a, b in edges if b == gone]
        after = [b for a, b in edges if a == gone]
        edges = {edge for edge in edges if gone not in edge} | set(product(before, after))
    return _kept(pass_, edges, lambda work: not is_attention(work))


def only_attention(pass_: Pass) -> Pass:
    """The attention of a pass alone."""
    return _kept(pass_, set(pass_.edges), is_attention)


@cache
def shared_attention(devices: int) -> Callable[[Pass], Pass]:
    """The attention of a pass alone, of devices that hold the keys of a part of the tokens each, with their exchanges.

    Before it they gather their queries, which each multiplies with its own keys; after it the logarithms of the sums of
    all exponentials, by which each scales its results, whose sums are scattered (`--decode-context-parallel-size` of
    vLLM; Helix, arXiv 2507.07120, exchanges as many bytes). One function for every number of devices.
    """

    def shared(pass_: Pass) -> Pass:
        works: list[Work] = []
        for work in only_attention(pass_).works:
            if work.flash is None:
                works.append(work)
                continue
            scores, mixed = work.gemms[:2]
            rows = scores.groups * scores.m
            around = {
                Collective.ALL_GATHER: (f"{work.name}.queries", HALF_BYTES * rows * scores.k),
                Collective.REDUCE_SCATTER: (f"{work.name}.results", HALF_BYTES * rows * mixed.n),
            }
            queries, results = (
                _exchanged(name, kind, float(moved), devices) for kind, (name, moved) in around.items()
            )
            sums = _exchanged(f"{work.name}.sums", Collective.ALL_GATHER, float(_SUM_BYTES * rows), devices)
            works += [queries, work, sums, results]
        return Pass(tuple(works), tuple((at, at + 1) for at in range(len(works) - 1)))

    return shared


_SUM_BYTES = 4  # of a logarithm, fp32


def _exchanged(name: str, collective: Collective, payload_bytes: float, devices: int) -> Work:
    """A collective of neighbours in a tensor group; HBM sees what is sent and what is received."""
    link = Link(collective, payload_bytes, Group(Parallel.CONTEXT, devices))
    moved = payload_bytes * (1 + 1 / devices)
    return Work(name, collective.value, Unit.LINK, stream_bytes=moved, link=link)


def _kept(pass_: Pass, edges: set[tuple[int, int]], keep: Callable[[Work], bool]) -> Pass:
    at = {old: new for new, old in enumerate(i for i, work in enumerate(pass_.works) if keep(work))}
    between = sorted((at[a], at[b]) for a, b in edges if a in at and b in at)
    return Pass(tuple(pass_.works[i] for i in at), tuple(between))


@dataclass(frozen=True, slots=True)
class ChainCosts:
    """Costs of the layers of a chain on one device, (L,) each: seconds, joules of events, kernels launched."""

    seconds: Floats
    joules: Floats
    kernels: Floats


@dataclass(frozen=True, slots=True)
class Chips:
    """Architectures on a network, at some fidelity of the cost model; `table` has a row for each, costed side by side.

    Layers are costed once: those without experts are the same objects however experts are dealt.
    """

    model: CostModel
    table: ArchitectureTable
    _known: dict[tuple[int, Callable[[Pass], Pass]], tuple[Layer, Floats]] = field(default_factory=dict)
    _least: dict[Pass, Floats] = field(default_factory=dict)

    def least_s(self, pass_: Pass) -> Floats:
        """Seconds that a pass takes at least on each of them, (A,), by what each operator takes; they are kept."""
        if pass_ not in self._least:
            timed = TimedPass.of(self.model.costs(pass_), self.table)
            self._least[pass_] = timed.least_s(np.arange(len(self.table)))
        return self._least[pass_]

    def each(self, chains: Sequence[LayerChain], part: Callable[[Pass], Pass], row: int = 0) -> list[Floats]:
        """Seconds, joules and kernels of a part of every layer of some inference chains on one of them, (L, 3) each.

        Layers of all chains are costed together, which is faster than one after the other.
        """
        layers = {id(layer): layer for chain in chains for layer in chain.layers}
        new = {at: layer for at, layer in layers.items() if (at, part) not in self._known}
        if new:
            figures = self._costed(
                replace(chains[0], layers=tuple(new.values()), index=(*range(len(new)),)), part
            )
            self._known.update({(at, part): (new[at], found) for at, found in zip(new, figures, strict=True)})
        return [
            np.array([self._known[id(chain.layers[u]), part][1][row] for u in chain.index])
            for chain in chains
        ]

    def _costed(self, chain: LayerChain, part: Callable[[Pass], Pass]) -> Floats:
        """Seconds, joules and kernels of a part of each layer on every architecture, (L, A, 3)."""
        layers = tuple(replace(layer, forward=part(layer.forward)) for layer in chain.layers)
        rows = np.arange(len(self.table))
        kernels = np.flatnonzero(self.model.factors.simt_of >= 0)
        if len(kernels):  # of all layers at once: they are kept
            self.model.fastest_s([w for layer in layers for w in layer.forward.works], kernels[:1])
        timed = TimedChain(replace(chain, layers=layers), self.model, self.table)
        _, times = timed.exact(rows, SolveLimits(lambda: np.inf, PASS_STATES))
        found = np.zeros((len(layers), len(rows), 3))
        for layer, pass_ in enumerate(timed.forward):
            found[layer, :, 0] = times.forward_s[:, layer]
            if pass_.work.works:
                found[layer, :, 1] = dynamic_j(pass_events(pass_.costs, rows), self.table)
                found[layer, :, 2] = len(pass_.work.works)
        return found


@dataclass(frozen=True, slots=True)
class Chip:
    """One architecture among some that are costed together; `table` has one row."""

    among: Chips
    row: int
    table: ArchitectureTable

    @classmethod
    def alone(cls, model: CostModel, table: ArchitectureTable) -> Chip:
        """The only architecture of a table."""
        return cls(Chips(model, table), 0, table)

    @classmethod
    def of(cls, among: Chips, row: int) -> Chip:
        """One of several."""
        return cls(among, row, among.table.take([row]))

    def costs(self, chain: LayerChain, part: Callable[[Pass], Pass]) -> ChainCosts:
        """Costs of a part of every layer of an inference chain."""
        return self.each([chain], part)[0]

    def each(self, chains: Sequence[LayerChain], part: Callable[[Pass], Pass]) -> list[ChainCosts]:
        """The same of some chains."""
        found = self.among.each(chains, part, self.row)
        return [ChainCosts(one[:, 0], one[:, 1], one[:, 2]) for one in found]
