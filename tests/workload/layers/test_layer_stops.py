"""Where a graph is cut, against looking at every position and every tensor."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from phaze.workload.layers.layer_cutting import _stops
from phaze.workload.operators.operator_graph import OpKind


def looked_for(kinds, lives, carried, swallowed):
    """Stops by definition: one tensor passes, or one that is not carried; each layer has an operator that works."""
    stops, begun = [], 0
    for i in range(len(kinds) - 1):
        passing = [t for t, (begin, stop) in lives.items() if begin <= i < stop]
        plain = [t for t in passing if t not in carried]
        one = plain if len(plain) == 1 else passing
        works = any(kind is not OpKind.VIEW for kind in kinds[begun : i + 1])
        more = any(kind is not OpKind.VIEW for kind in kinds[i + 1 :])
        if len(one) == 1 and one[0] not in swallowed and works and more:
            stops.append(i + 1)
            begun = i + 1
    return [*stops, len(kinds)]


@pytest.mark.parametrize("seed", range(60))
def test_stops_are_those_of_every_position(seed):
    draw = random.Random(seed)
    count = draw.randint(1, 25)
    kinds = [draw.choice([OpKind.VIEW, OpKind.ELEMENTWISE, OpKind.ELEMENTWISE]) for _ in range(count)]
    lives = {}
    for number in range(draw.randint(0, 2 * count)):
        begin = draw.randrange(count)
        lives[f"t{number}"] = begin, min(count, begin + draw.choice([0, 1, 1, 1, 2, draw.randint(0, count)]))
    carried, swallowed = ({t for t in lives if draw.random() < share} for share in (0.2, 0.1))
    graph = SimpleNamespace(operators=[SimpleNamespace(kind=kind) for kind in kinds])
    assert _stops(graph, lives, carried, swallowed) == looked_for(kinds, lives, carried, swallowed)
