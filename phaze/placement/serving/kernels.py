"""A pass taken apart: attention, which depends on contexts, and the rest, which depends on the number of tokens.

An iteration of a serving engine puts the tokens of all its sequences through one product, and only attention
sees sequences: so a mixed batch of prefill and decode costs the rest at their tokens together, plus the attention
of either (Yu et al., Orca, OSDI'22: selective batching; Agrawal et al., Sarathi-Serve, OSDI'24).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from phaze.arrays import Floats
from phaze.cost.energy import dynamic_j, pass_events
from phaze.cost.model import CostModel
from phaze.hardware.table import ArchitectureTable
from phaze.scheduling.layers import TimedChain
from phaze.scheduling.passes import Effort
from phaze.workload.work import LayerChain, Pass, Work

_STATES = 10_000  # of one exact schedule: far more than a layer's pass takes, and the same on every machine


def is_attention(work: Work) -> bool:
    """Whether an operator looks at the key-value cache."""
    return work.flash is not None


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


def _kept(pass_: Pass, edges: set[tuple[int, int]], keep: Callable[[Work], bool]) -> Pass:
    at = {old: new for new, old in enumerate(i for i, work in enumerate(pass_.works) if keep(work))}
    between = sorted((at[a], at[b]) for a, b in edges if a in at and b in at)
    return Pass(tuple(pass_.works[i] for i in at), tuple(between))


@dataclass(frozen=True, slots=True)
class Costs:
    """What the layers of a chain cost one device, (L,) each: seconds, joules of what happens, kernels launched."""

    seconds: Floats
    joules: Floats
    kernels: Floats


@dataclass(frozen=True, slots=True)
class Chip:
    """One architecture on its network, at some rung of the cost model; `table` has one row."""

    model: CostModel
    table: ArchitectureTable

    def costs(self, chain: LayerChain, part: Callable[[Pass], Pass]) -> Costs:
        """Costs of a part of every layer of an inference chain."""
        layers = tuple(replace(layer, forward=part(layer.forward)) for layer in chain.layers)
        timed, row = TimedChain(replace(chain, layers=layers), self.model, self.table), np.array([0])
        _, times = timed.exact(row, Effort(lambda: np.inf, _STATES))
        joules = [
            float(dynamic_j(pass_events(p.costs, row), self.table)[0]) if p.work.works else 0.0
            for p in timed.forward
        ]
        kernels = [float(len(layer.forward.works)) for layer in layers]
        index = list(chain.index)
        return Costs(times.forward_s[0, index], np.array(joules)[index], np.array(kernels)[index])
