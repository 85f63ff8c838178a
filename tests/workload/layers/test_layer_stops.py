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


def two_streams(blocks, inside):
    """Text and image: a block reads both and hands on both; inside it a third tensor is always there."""
    lives = {"before": (0, inside - 1)}
    for block in range(blocks):
        begin, end = block * inside, (block + 1) * inside
        for stream, made in (("text", end - 2), ("image", end - 1)):
            lives[f"{stream}{block}"] = made, end + inside - (1 if stream == "text" else 2)
        lives |= {f"step{i}": (i, i + 2) for i in range(begin, end - 2)}
    return {t: (made, min(last, blocks * inside)) for t, (made, last) in lives.items()}


def stops_of(lives, operators, swallowed=()):
    graph = SimpleNamespace(operators=[SimpleNamespace(kind=OpKind.ELEMENTWISE)] * operators)
    return _stops(graph, lives, (), swallowed)


def test_a_long_layer_is_cut_where_two_streams_have_both_moved_on():
    lives = two_streams(6, 20)
    assert {20 * k for k in range(1, 6)} <= set(stops_of(lives, 120))
    assert not {40} & set(stops_of(lives, 120, {"text1"}))


def test_two_streams_of_a_short_layer_stay_inside_it():
    lives = two_streams(3, 20)
    assert not {20, 40} & set(stops_of(lives, 60))
