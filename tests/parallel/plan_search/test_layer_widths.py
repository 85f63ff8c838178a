"""A strategy for each block with its tensor width: against the plan model, and against every choice tried in turn."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from layer_strategies import LayerWidths, layer_widths
from phaze.solvers.layerwise import Axis
from strategy_cases import estimator, framework

from phaze.parallel.parallel_plan import Zero

PLENTY = 1e15


def widths(microbatches=1, capacity=PLENTY, **under):
    return LayerWidths(estimator(4, 16, "a100", framework(**under)), microbatches, capacity)


def test_strategies_divide_all_devices_and_whole_samples():
    names = [one.name for one in widths().strategies]
    assert names == [
        "p1-d4",
        "p1-d4-r",
        "p1-s4",
        "p1-s4-r",
        "p1-d2-t2",
        "p1-d2-t2-r",
        "p1-s2-t2",
        "p1-s2-t2-r",
        "p1-t4",
        "p1-t4-r",
    ]
    assert [one.name for one in widths(16).strategies] == ["p1-t4", "p1-t4-r"]  # one sample for all devices
    each = [*layer_widths(widths().estimator, PLENTY)]
    assert [one.microbatches for one in each] == [1, 2, 4, 8, 16]


def test_one_strategy_for_all_layers_is_the_iteration_of_its_plan():
    """Where nothing hides, seconds add up as in the plan model: passes, the optimizer, exchanges.

    Here every block's exchange has a latency of its own, 5 us each, which is the difference.
    """
    some = widths(2)
    for number, strategy in enumerate(some.strategies):
        found, plan = some.chosen([number]), some.plan(strategy)
        if plan.zero is not Zero.WEIGHTS and not strategy.recompute:
            assert found.time_s == pytest.approx(some.estimator.iteration(plan).iteration_s, abs=1e-4)


def test_bytes_are_those_of_the_plan():
    some = widths(1)
    for number, strategy in enumerate(some.strategies):
        plan = some.plan(strategy)
        if not strategy.recompute and plan.zero is not Zero.WEIGHTS:
            (memory,) = some.estimator.memory(plan)
            held = memory.total_bytes - memory.working_bytes - memory.buffers_bytes - memory.reserved_bytes
            assert some.chosen([number]).memory_bytes == pytest.approx(held, rel=0.02)


def test_more_freedom_is_never_slower_and_memory_is_kept():
    free = widths()
    least = min(row.kept_bytes.sum() + row.working_bytes.max() for row in free._rows)
    for share in (1.05, 1.5, 3.0):
        some = widths(capacity=share * least)
        by_layer, one, uniform = some.chosen(), some.one_width_s(), some.uniform_s()
        assert by_layer.time_s <= one <= uniform
        kept = [some._rows[s].kept_bytes[g] for g, s in enumerate(by_layer.strategies)]
        runs = [some._rows[s].working_bytes[g] for g, s in enumerate(by_layer.strategies)]
        assert sum(kept) + max(runs) <= share * least * (1 + 1e-9)
    assert widths(capacity=least / 2).chosen() is None
    assert widths(capacity=least / 2).uniform_s() == np.inf


def test_the_choice_against_every_choice():
    some = widths(4)
    able = [n for n, one in enumerate(some.strategies) if not one.recompute and one.degree(Axis.SHARDED) == 1]
    rows = np.array([some._rows[n].time_s for n in able])
    change = some._change_s
    best = min(
        sum(rows[a, g] for g, a in enumerate(choice))
        + sum(change[g, able[choice[g - 1]], able[choice[g]]] for g in range(1, len(choice)))
        for choice in product(range(len(able)), repeat=rows.shape[1])
    )
    assert some.chosen(able).time_s == pytest.approx(best, rel=1e-12)


def test_samples_that_are_dealt_anew_take_time_both_ways():
    change = widths(2)._change_s
    assert np.array_equal(change, change.transpose(0, 2, 1))
    names = [one.name for one in widths(2).strategies]
    narrow, middle, wide = (names.index(name) for name in ("p1-d4", "p1-d2-t2", "p1-t4"))
    assert change[1, narrow, names.index("p1-s4-r")] == 0.0
    assert change[1, middle, wide] > 0.0
    assert change[0].max() == 0.0
