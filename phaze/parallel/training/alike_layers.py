"""Layers of equal structure, costed side by side: microbatches and degrees change sizes, seldom more."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.parallel.framework import Framework
from phaze.parallel.training.operator_costs import OperatorCosts, Operators, recomputed_operators
from phaze.workload.parallel_degrees import Parallel
from phaze.workload.work import Layer, Pass, Unit, Work

_ROWS = 1 << 14
"""Rows, a layer on an architecture each, that are worked out at once, for memory's sake."""

Chips = tuple[Floats, NDArray[np.bool_]]
"""Bytes/s of the memory of architectures, and where operators follow one another, (A,) each."""


def figures_of(layers: Sequence[Layer], costs: OperatorCosts, chips: Chips, kept: Set[str]) -> list[Floats]:
    """Figures of layers as of `layer_figures`, (4, 5 + groups, A) each, on chips whose operators follow one another."""
    alike: dict[Hashable, list[int]] = {}
    for place, layer in enumerate(layers):
        alike.setdefault(_structure(layer), []).append(place)
    found: dict[int, Floats] = {}
    most = max(1, _ROWS // len(chips[0]))
    for places in alike.values():
        for first in range(0, len(places), most):
            some = places[first : first + most]
            found.update(
                zip(some, _side_by_side([layers[at] for at in some], costs, chips, kept), strict=True)
            )
    return [found[place] for place in range(len(layers))]


def _side_by_side(
    layers: Sequence[Layer], costs: OperatorCosts, chips: Chips, kept: Set[str]
) -> list[Floats]:
    """Figures of layers of one structure."""
    experts = layers[0].expert_parameters > 0
    forward, backward = (
        costs.costed(*passes, experts=experts)
        for passes in ([one.forward for one in layers], [one.backward or Pass((), ()) for one in layers])
    )
    figures = layer_figures(forward, backward, None, chips, costs.framework, kept)
    return list(figures.reshape(*figures.shape[:2], len(layers), -1).swapaxes(1, 2).swapaxes(0, 1))


def _structure(layer: Layer) -> Hashable:
    """All that its figures depend on but sizes, which costs of operators, payloads and rows of experts carry."""
    passes = (layer.forward, layer.backward or Pass((), ()))
    return (layer.expert_parameters > 0, *((tuple(map(_kind, p.works)), p.edges) for p in passes))


def _kind(work: Work) -> Hashable:
    link = work.link
    group = None if link is None else (link.group.parallel, link.group.size, link.copies.count > 1)
    products = tuple(g.groups > 1 for g in work.gemms)
    return work.name, work.kind, work.unit, products, work.flash is None, group


def layer_figures(
    forward: Operators,
    backward: Operators,
    scheduled: tuple[Floats, Floats] | None,
    chips: Chips,
    framework: Framework,
    kept: Set[str],
) -> Floats:
    """Figures of one layer, (4, 5 + groups, A): rows as of `LayerPassCosts.of` of each side of `LayerCosts`.

    Of several of one structure on each of the architectures, those of the first layer first. `scheduled`: seconds of
    its passes on the cores without collectives, (A,) each.
    """
    hbm_bytes_per_s, serial = chips
    times = len(forward.alone_s) // max(1, len(hbm_bytes_per_s))
    both, alone = (forward, backward), [o.total_s for o in (forward, backward)]
    lasting = alone
    if scheduled is not None:
        each = zip(alone, scheduled, both, strict=True)
        lasting = [np.where(serial, one, seconds * o.longer) for one, seconds, o in each]
    row_s = np.tile(framework.expert_passes / hbm_bytes_per_s, times)
    ahead_s, behind_s = (seconds + row_s * o.row_bytes for seconds, o in zip(lasting, both, strict=True))
    share = ahead_s / np.maximum(alone[0], np.finfo(np.float64).tiny)
    again = [recomputed_operators(*both, framework, kept, ends=ends) for ends in (False, True)]
    return np.array(
        [
            _side(forward, ahead_s, framework),
            _side(backward, behind_s, framework),
            *(_side(some, share * some.total_s, framework) for some in again),
        ]
    )


def _side(operators: Operators, lasting_s: Floats, framework: Framework) -> Floats:
    """Figures of one layer in one direction, (5 + groups, A), whose operators in all take so long, (A,)."""
    o, alone = operators, operators.total_s
    scale = np.divide(lasting_s, alone, out=np.ones_like(alone), where=alone > 0)
    exposed, hidden = {parallel: np.zeros(len(alone)) for parallel in Parallel}, np.zeros(len(alone))
    for at, work in enumerate(o.works):
        if work.link is not None:
            hides = o.hidden_s(at, framework)
            exposed[work.link.group.parallel] += o.link_s[:, at] - hides
            hidden += hides
    vector_s = scale * o.sum_s([w.unit is Unit.VECTOR for w in o.works])
    weight_s = scale * o.sum_s([w.makes_weight_gradient for w in o.works])
    launches = np.full(len(alone), o.launches(framework))
    return np.array([lasting_s, vector_s, weight_s, hidden, launches, *exposed.values()])
