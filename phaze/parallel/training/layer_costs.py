"""Costs of every unique layer of a chain on some architectures, in the parts that plans put together."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.cost.cost_model import CostModel
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s
from phaze.parallel.chunk_division import Grain, groups_of
from phaze.parallel.framework import Framework
from phaze.parallel.training.alike_layers import Chips, figures_of, layer_figures
from phaze.parallel.training.operator_costs import OperatorCosts, Operators, with_score_passes
from phaze.scheduling.layers import LayerTimes, ScheduledLayers, TimedChain
from phaze.scheduling.passes import SolveLimits, TimedPass
from phaze.workload.parallel_degrees import Parallel
from phaze.workload.work import Layer, LayerChain, Pass

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

    @classmethod
    def of(cls, rows: Floats) -> LayerPassCosts:
        """Costs from rows as of `stacked`, (5 + groups, A, U)."""
        (kernels, vector, weight, hidden, launches), exposed = rows[:5], rows[5:]
        starts = launches.max(axis=0, initial=0.0)  # the same on all, of which there may be none
        return cls(kernels, vector, weight, dict(zip(Parallel, exposed, strict=True)), hidden, starts)

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

    def content(self, grain: Grain) -> tuple[bytes, bytes, int]:
        """Key of chains whose groups have the same parameters, tied ones, too."""
        if grain not in self._contents:
            sizes, which = self.sizes(grain)
            self._contents[grain] = sizes.tobytes(), which.tobytes(), self.tied_parameters
        return self._contents[grain]

    @cached_property
    def _contents(self) -> dict[Grain, tuple[bytes, bytes, int]]:
        """Keys that were asked for."""
        return {}

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


def cost_ahead(
    chains: Sequence[LayerChain], costs: OperatorCosts, table: ArchitectureTable, kept: Set[str] = frozenset()
) -> None:
    """Cost the operators of some chains all at once, so that the figures of each are at hand; `kept` as below."""
    layers = list({id(layer): layer for chain in chains for layer in chain.layers}.values())
    passes = (p for layer in layers for p in (layer.forward, layer.backward) if p is not None)
    costs.learn([w for p in passes for w in with_score_passes(p, costs.framework).works])
    if _chips(costs, table)[1].all():
        _one_after_the_other(layers, costs, table, kept)


def _chips(costs: OperatorCosts, table: ArchitectureTable) -> Chips:
    return hbm_bandwidth_bytes_per_s(table), costs.model.factors.simt_of >= 0


def _one_after_the_other(
    layers: Sequence[Layer], costs: OperatorCosts, table: ArchitectureTable, kept: Set[str]
) -> list[Floats]:
    """Figures of layers on chips whose operators follow one another, each worked out once."""
    chips = _chips(costs, table)
    return costs.once(layers, kept, lambda new: figures_of(new, costs, chips, kept))


def layer_costs(
    chain: LayerChain,
    costs: OperatorCosts,
    table: ArchitectureTable,
    limits: SolveLimits | None,
    kept: Set[str] = frozenset(),
    scheduled: ScheduledLayers | None = None,
    cores: CoreTimes | None = None,
) -> LayerCosts:
    """Cost a chain on the architectures of a table; `kept`: names of operators that full recompute spares.

    Where chips run kernels these follow one another; passes of others are scheduled on their cores, links aside,
    unless that chain is `scheduled` already. Without `limits` they are not: then they take what no schedule is shorter
    than. `cores`: of this model and table, which know what other chains share.
    """
    model, chips = costs.model, _chips(costs, table)
    if scheduled is not None and scheduled.chain == chain:
        times: LayerTimes | None = scheduled.times
    elif chips[1].all():
        return _put_together(chain, _one_after_the_other(chain.layers, costs, table, kept))
    else:
        cores = cores or CoreTimes(model, table)
        times = cores.least(chain) if limits is None else cores.exact(chain, limits)
    forward, backward = zip(*(_operators(layer, costs) for layer in chain.layers), strict=True)
    return layer_costs_of(chain, forward, backward, times, chips, costs.framework, kept)


def _operators(layer: Layer, costs: OperatorCosts) -> tuple[Operators, Operators]:
    """Operators of both passes of a layer."""
    experts = layer.expert_parameters > 0
    forward, backward = (
        costs.costed(p, experts=experts) for p in (layer.forward, layer.backward or Pass((), ()))
    )
    return forward, backward


def layer_costs_of(
    chain: LayerChain,
    forward: Sequence[Operators],
    backward: Sequence[Operators],
    times: LayerTimes | None,
    chips: Chips,
    framework: Framework,
    kept: Set[str] = frozenset(),
) -> LayerCosts:
    """Figures of layers on architectures (A, U) from their operators, one per unique layer and direction.

    `times`: of their passes on the cores without collectives, (A, U); None where no chip has any use for them.
    """
    scheduled = (
        [None] * len(forward) if times is None else zip(times.forward_s.T, times.backward_s.T, strict=True)
    )
    each = zip(forward, backward, scheduled, strict=True)
    return _put_together(chain, [layer_figures(f, b, some, chips, framework, kept) for f, b, some in each])


def _put_together(chain: LayerChain, figures: Sequence[Floats]) -> LayerCosts:
    """Costs of a chain from `layer_figures` of each of its unique layers."""
    forward, backward, recomputation, ending = np.stack(figures, axis=-1)
    return LayerCosts(chain, *map(LayerPassCosts.of, (forward, backward, recomputation, ending)))


@dataclass(frozen=True)
class CoreTimes:
    """Times of layers on the cores of the architectures of a table, without collectives; 0 on those that run kernels.

    Passes that chains share are costed and scheduled once.
    """

    model: CostModel
    table: ArchitectureTable
    _passes: dict[Pass, TimedPass] = field(default_factory=dict)

    @cached_property
    def rows(self) -> Rows:
        """The architectures whose layers are scheduled."""
        return np.flatnonzero(self.model.factors.simt_of < 0)

    def exact(self, chain: LayerChain, limits: SolveLimits) -> LayerTimes:
        """Times (A, U) of the best schedules."""
        return self._in_place(chain, self._timed(chain).exact(self.rows, limits)[1])

    def least(self, chain: LayerChain) -> LayerTimes:
        """Times (A, U) that no schedule is shorter than, and none is made for."""
        return self._in_place(chain, self._timed(chain).least(self.rows))

    def _timed(self, chain: LayerChain) -> TimedChain:
        ideal, costs = self._unlinked
        return TimedChain(chain, costs, ideal, passes=self._passes)

    @cached_property
    def _unlinked(self) -> tuple[ArchitectureTable, CostModel]:
        return without_links(self.model, self.table)

    def _in_place(self, chain: LayerChain, times: LayerTimes) -> LayerTimes:
        """Times of all architectures."""
        forward, backward = np.zeros((2, len(self.table), len(chain.layers)))
        forward[self.rows], backward[self.rows] = times.forward_s, times.backward_s
        return LayerTimes(forward, backward)


def without_links(model: CostModel, table: ArchitectureTable) -> tuple[ArchitectureTable, CostModel]:
    """Architectures on which collectives take no time, and their costs."""
    ideal = table.replace(link_bandwidth_bytes_per_s=np.full(len(table), _FAST))
    return ideal, CostModel(ideal, model.network.ideal(), model.rung, model.own, like=model)
