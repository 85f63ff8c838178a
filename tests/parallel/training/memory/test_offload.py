"""Weights, activations and the optimizer in the memory of the host."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategy_cases import estimator, framework

from phaze.errors import InputError
from phaze.parallel.parallel_plan import Offload, ParallelPlan, Zero
from phaze.parallel.training.memory.host_offload import beside_s

CHOICES = [some for n in range(4) for some in combinations(Offload, n)]
seconds = st.lists(st.tuples(*[st.floats(0, 5)] * 3), min_size=1, max_size=8)


def iteration(offload, zero=Zero.WEIGHTS, chip="a100", **changes):
    strategy = ParallelPlan(2, data_parallel=8, zero=zero, offload=frozenset(offload))
    return estimator(chip=chip, software=framework(**changes)).iteration(strategy)


@pytest.mark.parametrize("zero", Zero)
def test_every_offload_saves_memory_and_none_is_free(zero):
    plain = iteration((), zero)
    for what in Offload:
        found = iteration({what}, zero)
        assert found.memory_bytes < plain.memory_bytes
        assert found.iteration_s > plain.iteration_s
        assert found.time.total_s == pytest.approx(found.iteration_s)


@pytest.mark.parametrize("offload", CHOICES, ids="+".join)
def test_hidden_transfers_never_cost_more_than_exposed_ones(offload):
    assert iteration(offload, hides_offload=True).iteration_s <= iteration(offload).iteration_s + 1e-12


def test_exposed_activations_take_their_bytes_over_the_link_both_ways():
    plain, away = iteration(()), iteration({Offload.ACTIVATIONS})
    moved = plain.memory[0].activations_bytes * plain.microbatches
    assert away.iteration_s - plain.iteration_s == pytest.approx(2 * moved / 32e9)


def test_host_steps_with_its_memory_and_sends_weights_back():
    plain, away = iteration((), Zero.NONE), iteration({Offload.OPTIMIZER}, Zero.NONE)
    parameters = plain.memory[0].weights_bytes / 2
    assert away.time.optimizer_s == pytest.approx(parameters * (30 / 51.2e9 + 2 / 32e9))


def test_optimizer_and_weights_on_one_side_send_nothing_back():
    both = iteration(set(Offload) - {Offload.ACTIVATIONS}).time.optimizer_s
    assert both < iteration({Offload.OPTIMIZER}).time.optimizer_s


def test_a_faster_link_helps():
    times = [iteration(set(Offload), chip=chip).time for chip in ("h200", "gh200")]
    assert times[1].optimizer_s < times[0].optimizer_s
    assert times[1].offload_s < times[0].offload_s


def test_chip_without_a_host_link_is_refused():
    with pytest.raises(InputError, match="host_bandwidth_bytes_per_s"):
        iteration({Offload.WEIGHTS}, chip="p4")


@given(seconds, st.booleans())
def test_transfers_beside_computation_are_bounded(columns, drains):
    compute, inward, outward = zip(*columns, strict=True)
    found = beside_s(compute, inward, outward, drains=drains)
    assert found >= sum(compute) - 1e-9
    assert found <= sum(compute) + sum(inward) + sum(outward) + 1e-9
    if drains:
        assert found >= max(sum(inward), sum(outward)) - 1e-9


def test_two_groups_at_most_are_in_transit():
    assert beside_s([1.0] * 10, [0.0] * 10, [3.0] * 10, drains=True) == pytest.approx(1 + 10 * 3.0)
    assert beside_s([3.0] * 10, [1.0] * 10, [1.0] * 10, drains=False) == pytest.approx(1 + 10 * 3.0)
