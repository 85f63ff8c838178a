"""Costs of every unique layer of a chain on some architectures, in the parts that plans put together."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.cost.cost_model import CostModel
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s
from phaze.parallel.chunk_division import Grain, groups_of
from phaze.parallel.framework import Framework
from phaze.parallel.training.communication import row_bytes
from phaze.parallel.training.operator_costs import (
    OperatorCosts,
    Operators,
    recomputed_operators,
    with_score_passes,
)
from phaze.scheduling.layers import LayerTimes, ScheduledLayers, TimedChain
from phaze.scheduling.passes import SolveLimits
from phaze.workload.parallel_degrees import Parallel
from phaze.workload.work import LayerChain, Pass, Unit

_FAST = 1e18  # bytes/s of a link on which nothing takes time


@dataclass(frozen=True)
class LayerPassCosts:
    """Seconds of one microbatch in one direction, (U,) each, by unique layer; on many architectures (A, U).

    `kernels_s`: computation, `vector_s` the part of it on vector units. `weight_s`: the part of it that makes
    parameters' gradients, which nothing else waits for. `exposed_s`: collectives that nothing hides, by what their
    groups divide; `hidden_s`: those beside computation. `launches`: operators that the host starts.
    """

    kernels_s: Floats
    vector_s: Floats
    weight_s: Floats
    exposed_s: dict[Parallel, Floats]
    hidden_s: Floats
    launches: Floats

    def mixed(self, other: LayerPassCosts, taken: NDArray[np.bool_]) -> LayerPassCosts:
        """These, but of the other where it is taken, (U,)."""
        return LayerPassCosts(
            kernels_s=np.where(taken, other.kernels_s, self.kernels_s),
            vector_s=np.where(taken, other.vector_s, self.vector_s),
            weight_s=np.where(taken, other.weight_s, self.weight_s),
            exposed_s={p: np.where(taken, other.exposed_s[p], one) for p, one in self.exposed_s.items()},
            hidden_s=np.where(taken, other.hidden_s, self.hidden_s),
            launches=np.where(taken, other.launches, self.launches),
        )

    def alone(self, row: int = 0) -> LayerPassCosts:
        """Costs of one of many architectures."""
        return LayerPassCosts(
            kernels_s=self.kernels_s[row],
            vector_s=self.vector_s[row],
            weight_s=self.weight_s[row],
            exposed_s={p: one[row] for p, one in self.exposed_s.items()},
            hidden_s=self.hidden_s[row],
            launches=self.launches,
        )

    @cached_property
    def stacked(self) -> Floats:
        """All of it, (5 + groups, U): kernels, vector, weight, hidden, launches, then what is exposed."""
        parts = (self.kernels_s, self.vector_s, self.weight_s, self.hidden_s, self.launches)
        return np.array([*parts, *self.exposed_s.values()])


@dataclass(frozen=True)
class LayerSizes:
    """Parameters of a chain of layers: all that plans need of it but times."""

    chain: LayerChain

    @cached_property
    def parameters(self) -> Floats:
        """Parameters of every position; those of experts, and of whole layers, among them, (3, L)."""
        each = [
            [layer.parameters, layer.expert_parameters, whole * layer.parameters]
            for layer, whole in zip(self.chain.layers, self.chain.replicated, strict=True)
        ]
        found: Floats = np.array(each, dtype=np.float64)[list(self.chain.index)].T
        return found

    @cached_property
    def tied_parameters(self) -> int:
        """Parameters that the first and the last of the layers that read them count each for itself."""
        return self.chain.tied_parameters

    def sizes(self, grain: Grain) -> tuple[Floats, NDArray[np.intp]]:
        """`parameters` of distinct groups of layers, (3, K); which of them each group is, (G,)."""
        if grain not in self._known:
            self._known[grain] = self._sizes(grain)
        return self._known[grain]

    @cached_property
    def _known(self) -> dict[Grain, tuple[Floats, NDArray[np.intp]]]:
        """Sizes that were asked for."""
        return {}

    def _sizes(self, grain: Grain) -> tuple[Floats, NDArray[np.intp]]:
        firsts = [first for first, _ in groups_of(self.chain, grain)]
        distinct, which = np.unique(
            np.add.reduceat(self.parameters, firsts, axis=1), axis=1, return_inverse=True
        )
        return distinct, which.ravel()


@dataclass(frozen=True)
class LayerCosts(LayerSizes):
    """A chain, and what its passes take on one architecture, or on many.

    `again`: forward as full recompute runs it, `ending` in the last layer of what is recomputed together.
    """

    forward: LayerPassCosts
    backward: LayerPassCosts
    recomputation: LayerPassCosts
    ending: LayerPassCosts

    def mixed(self, undivided: LayerCosts, chain: LayerChain) -> LayerCosts:
        """Costs of a chain of these layers and, where they stay whole, undivided ones."""
        taken = np.array(chain.replicated)
        return LayerCosts(
            chain,
            forward=self.forward.mixed(undivided.forward, taken),
            backward=self.backward.mixed(undivided.backward, taken),
            recomputation=self.recomputation.mixed(undivided.recomputation, taken),
            ending=self.ending.mixed(undivided.ending, taken),
        )

    def alone(self, row: int = 0) -> LayerCosts:
        """Costs of one of many architectures."""
        sides = (self.forward, self.backward, self.recomputation, self.ending)
        return LayerCosts(self.chain, *(side.alone(row) for side in sides))


def cost_ahead(chains: Sequence[LayerChain], costs: OperatorCosts) -> None:
    """Cost the operators of some chains all at once, so that the figures of each are at hand."""
    passes = (p for chain in chains for layer in chain.layers for p in (layer.forward, layer.backward))
    costs.seconds([w for p in passes if p is not None for w in with_score_passes(p, costs.framework).works])


def layer_costs(
    chain: LayerChain,
    costs: OperatorCosts,
    table: ArchitectureTable,
    limits: SolveLimits,
    kept: Set[str] = frozenset(),
    scheduled: ScheduledLayers | None = None,
) -> LayerCosts:
    """Cost a chain on the architectures of a table; `kept`: names of operators that full recompute spares.

    Where chips run kernels these follow one another; passes of others are scheduled on their cores, links aside,
    unless that chain is `scheduled` already.
    """
    model = costs.model

    def operators(passes: Sequence[Pass]) -> list[Operators]:
        pairs = zip(chain.layers, passes, strict=True)
        return [costs.costed(p, experts=layer.expert_parameters > 0) for layer, p in pairs]

    forward = operators([layer.forward for layer in chain.layers])
    backward = operators([layer.backward or Pass((), ()) for layer in chain.layers])
    serial = model.factors.simt_of >= 0
    if scheduled is not None and scheduled.chain == chain:
        times: LayerTimes | None = scheduled.times
    else:
        times = (
            None if serial.all() else _link_free_times(chain, model, table, limits, np.flatnonzero(~serial))
        )
    chips = hbm_bandwidth_bytes_per_s(table), serial
    return layer_costs_of(chain, forward, backward, times, chips, costs.framework, kept)


def layer_costs_of(
    chain: LayerChain,
    forward: Sequence[Operators],
    backward: Sequence[Operators],
    times: LayerTimes | None,
    chips: tuple[Floats, NDArray[np.bool_]],
    framework: Framework,
    kept: Set[str] = frozenset(),
) -> LayerCosts:
    """Figures of layers on architectures (A, U) from their operators, one per unique layer and direction.

    `times`: of their passes on the cores without collectives, (A, U); None where no chip has any use for them.
    `chips`: bytes/s of their memory, and where operators follow one another, (A,) each.
    """
    hbm_bytes_per_s, serial = chips
    alone = [np.stack([o.total_s for o in some], axis=1) for some in (forward, backward)]
    lasting = alone
    if times is not None:
        longer = [np.stack([o.longer for o in some], axis=1) for some in (forward, backward)]
        each = zip(alone, (times.forward_s, times.backward_s), longer, strict=True)
        lasting = [np.where(serial[:, None], one, s * more) for one, s, more in each]
    row_s = framework.expert_passes / hbm_bytes_per_s[:, None]
    ahead_s, behind_s = (
        seconds + row_s * [row_bytes(o.pass_) for o in some]
        for seconds, some in zip(lasting, (forward, backward), strict=True)
    )
    both = list(zip(forward, backward, strict=True))
    share = ahead_s / np.maximum(alone[0], np.finfo(np.float64).tiny)
    recomputation, ending = (
        [recomputed_operators(f, b, framework, kept, ends=ends) for f, b in both] for ends in (False, True)
    )
    return LayerCosts(
        chain,
        _pass_costs(forward, ahead_s, framework),
        _pass_costs(backward, behind_s, framework),
        *(
            _pass_costs(some, share * np.stack([o.total_s for o in some], axis=1), framework)
            for some in (recomputation, ending)
        ),
    )


def _link_free_times(
    chain: LayerChain, model: CostModel, table: ArchitectureTable, limits: SolveLimits, rows: Rows
) -> LayerTimes:
    """Times of layers whose collectives take none, (A, U): of the architectures at some rows, 0 of the others."""
    ideal, costs = without_links(model, table)
    found = TimedChain(chain, costs, ideal).exact(rows, limits)[1]
    forward, backward = np.zeros((2, len(table), len(chain.layers)))
    forward[rows], backward[rows] = found.forward_s, found.backward_s
    return LayerTimes(forward, backward)


def without_links(model: CostModel, table: ArchitectureTable) -> tuple[ArchitectureTable, CostModel]:
    """Architectures on which collectives take no time, and their costs."""
    ideal = table.replace(link_bandwidth_bytes_per_s=np.full(len(table), _FAST))
    return ideal, CostModel(ideal, model.network.ideal(), model.rung, model.own)


def _pass_costs(layers: Sequence[Operators], scheduled_s: Floats, framework: Framework) -> LayerPassCosts:
    alone = np.stack([o.total_s for o in layers], axis=1)
    scale = np.divide(scheduled_s, alone, out=np.ones_like(alone), where=alone > 0)
    exposed = {parallel: np.zeros(alone.shape) for parallel in Parallel}
    hidden = np.zeros(alone.shape)
    for i, o in enumerate(layers):
        for at, work in enumerate(o.works):
            if work.link is not None:
                hides = o.hidden_s(at, framework)
                exposed[work.link.group.parallel][:, i] += o.link_s[:, at] - hides
                hidden[:, i] += hides
    vector = [o.sum_s([w.unit is Unit.VECTOR for w in o.works]) for o in layers]
    weight = [o.sum_s([w.makes_weight_gradient for w in o.works]) for o in layers]
    return LayerPassCosts(
        kernels_s=scheduled_s,
        vector_s=scale * np.stack(vector, axis=1),
        weight_s=scale * np.stack(weight, axis=1),
        exposed_s=exposed,
        hidden_s=hidden,
        launches=np.array([o.launches(framework) for o in layers]),
    )
