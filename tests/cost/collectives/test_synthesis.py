"""Synthesized collectives: GenModel's table, every order of stages by hand, a machine that runs them, and bounds."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_algorithms import Machine, own_parts

from phaze.cost.collectives.collective_algorithms import levels, terms
from phaze.cost.collectives.collective_times import algorithms_s, least_link_s, ways
from phaze.hardware.cluster_network import Network, load_network, network_yaml
from phaze.hardware.network_tiers import NAMED, Algorithm, LinkLaw, Tier, Topology
from phaze.workload.work import Collective, Group, Link

WIDTH = 10e9
EVERY = tuple(Algorithm)
SIZES = np.array([1e3, 1e5, 1e6, 1e7, 1e9])


def switch(devices=None, **law):
    return Tier(devices=devices, bandwidth_bytes_per_s=WIDTH, law=LinkLaw(**law))


def network(*tiers, algorithms=EVERY):
    return Network(name="made up", tiers=tiers, algorithms=algorithms)


def genmodel_s(stages, payload, alpha, gamma, delta, epsilon, threshold):
    """GenModel of hierarchical co-located parameter servers (2409.04202), constants in times of sending a byte."""
    seconds, parts = 0.0, 1
    for fan_in in stages:
        parts *= fan_in
        sent, reduced, touched = 2 * (fan_in - 1), fan_in - 1, fan_in + 1
        crowd = max(fan_in - threshold, 0) * epsilon * sent
        seconds += 2 * alpha + (sent + gamma * reduced + delta * touched + crowd) / parts * payload / WIDTH
    return seconds


def orders_of(n):
    """Every ordered factorisation of n into factors of 2 or more."""
    if n == 1:
        return [()]
    return [(f, *rest) for f in range(2, n + 1) if n % f == 0 for rest in orders_of(n // f)]


@pytest.mark.parametrize(
    ("algorithm", "rounds", "touched", "senders"),
    [
        (Algorithm.RING, lambda n: 2 * (n - 1), lambda n: 3 * (n - 1) / n, lambda n: 1),
        (Algorithm.HALVING_DOUBLING, lambda n: 2 * np.log2(n), lambda n: 3 * (n - 1) / n, lambda n: 1),
        (Algorithm.SYNTHESIZED, lambda n: 2, lambda n: (n + 1) / n, lambda n: n - 1),
    ],
)
@pytest.mark.parametrize("n", [2, 4, 8, 64])
def test_the_table_of_genmodel(algorithm, rounds, touched, senders, n):
    """Rounds, bytes sent, added and touched, and senders, of which GenModel counts the receiver as one more."""
    (level,) = levels(network(switch()), n)
    found = terms(Collective.ALL_REDUCE, algorithm, level, n)
    assert (found.steps, found.senders) == (rounds(n), senders(n))
    assert (found.sent, found.reduced) == (2 * (n - 1) / n, (n - 1) / n)
    assert found.touched == pytest.approx(touched(n))


def test_stages_telescope_to_both_extremes():
    """One stage touches (N + 1) / N; stages of two 3 (N - 1) / N, as a ring does, the most of all."""
    for n in (4, 8, 12, 64):
        by_order = {
            stages: sum((f + 1) / prod(stages[: i + 1]) for i, f in enumerate(stages))
            for stages in orders_of(n)
        }
        assert min(by_order, key=by_order.get) == (n,)
        assert by_order[n,] == pytest.approx((n + 1) / n)
        if n & (n - 1) == 0:
            assert max(by_order.values()) == pytest.approx(3 * (n - 1) / n)
        for stages in by_order:
            assert sum((f - 1) / prod(stages[: i + 1]) for i, f in enumerate(stages)) == pytest.approx(
                (n - 1) / n
            )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([2, 3, 6, 8, 12, 16, 24]),
    st.floats(0, 1e-4), st.floats(0, 2), st.floats(0, 2), st.floats(0, 0.5), st.integers(1, 12),
)  # fmt: skip
def test_the_best_of_all_orders_on_one_switch(n, alpha, gamma, delta, epsilon, threshold):
    law = {"step_s": alpha, "gamma": gamma, "memory": delta, "epsilon": epsilon, "fan_in": threshold - 1.0}
    one = network(switch(**law), algorithms=(Algorithm.SYNTHESIZED,))
    found = algorithms_s(Collective.ALL_REDUCE, SIZES, one, WIDTH, n)[Algorithm.SYNTHESIZED]
    for size, seconds in zip(SIZES, found, strict=True):
        by_hand = [
            genmodel_s(stages, size, alpha, gamma, delta, epsilon, threshold) for stages in orders_of(n)
        ]
        assert seconds == pytest.approx(min(by_hand), rel=1e-12)


def test_stages_win_where_incast_costs_more_than_they_do():
    """4 x 4 beats 16 at once where what is crowded beyond the threshold exceeds two more rounds and touched bytes."""
    n, alpha, delta, threshold, size = 16, 1e-5, 0.3, 4, 1e7
    for epsilon in np.linspace(0, 0.5, 26):
        one, two = (genmodel_s(s, size, alpha, 0, delta, epsilon, threshold) for s in ((16,), (4, 4)))
        crowded = epsilon * (n - threshold) * 2 * (n - 1) / n * size / WIDTH
        saved = 2 * alpha + delta * (5 / 4 + 5 / 16 - 17 / 16) * size / WIDTH
        assert (two < one) == (crowded > saved)


def test_without_memory_and_incast_it_is_alpha_beta_gamma():
    """Two rounds and no more bytes than any: all at once is best at every size."""
    law = {"step_s": 1e-5, "gamma": 0.3}
    best = ways(Collective.ALL_REDUCE, network(switch(**law)), WIDTH, 12)
    assert [way.words for way in best] == ["12"]
    size = 1e6
    assert best[0].law.seconds(np.array(size)) == pytest.approx(
        2e-5 + (2 + 0.3) * 11 / 12 * size / WIDTH, rel=1e-12
    )


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([(2, 2), (4, 3), (3, 8), (4, 4)]),
    st.floats(0, 1), st.floats(0, 0.3), st.integers(0, 6), st.floats(1, 8),
    st.sampled_from([Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER]),
)  # fmt: skip
def test_on_two_tiers_every_order_is_a_way(shape, memory, epsilon, fan_in, thinner, collective):
    """The best of stages inside, then outside, or all at once, by hand; no way is faster than what must cross."""
    inner, outer = shape
    n, both = inner * outer, collective is Collective.ALL_REDUCE
    laws = [
        {"step_s": s, "memory": memory, "epsilon": epsilon, "fan_in": float(fan_in)} for s in (1e-6, 5e-6)
    ]
    tree = Tier(devices=None, topology=Topology.FAT_TREE, bandwidth_bytes_per_s=WIDTH, oversubscription=thinner,
                law=LinkLaw(**laws[1]))  # fmt: skip
    one = network(switch(inner, **laws[0]), tree, algorithms=(Algorithm.SYNTHESIZED,))
    found = algorithms_s(collective, SIZES, one, WIDTH, n)[Algorithm.SYNTHESIZED]
    reduces, sweeps = collective is not Collective.ALL_GATHER, 2 if both else 1

    def stage_s(senders, sent, touched, wide, parts, size):
        crowd = 1 + epsilon * max(senders - fan_in, 0)
        moved = sweeps * sent * crowd + (memory * touched if reduces else 0)
        return moved / parts * size / wide

    for size, seconds in zip(SIZES, found, strict=True):
        best = np.inf
        for inside in orders_of(inner):
            for outside in orders_of(outer):
                total, parts = 0.0, 1
                for f, wide, step in [(f, WIDTH, 1e-6) for f in inside] + [
                    (f, WIDTH / thinner, 5e-6) for f in outside
                ]:
                    total += sweeps * step + stage_s(f - 1, (f - 1) / f, (f + 1) / f, wide, parts, size)
                    parts *= f
                best = min(best, total)
        near = stage_s(n - 1, (n - 1) / n, (n + 1) / n, WIDTH, 1, size)
        far = stage_s(n - inner, (n - inner) / n, 0, WIDTH / thinner, 1, size)
        # there and back one after the other: the slower tier of each way counts
        flat = sweeps * 5e-6 + max(near, far) if not both else best
        assert seconds <= min(best, flat) * (1 + 1e-12)
        if not both:
            assert seconds == pytest.approx(min(best, flat), rel=1e-12)
        link = Link(collective, size, Group(n, 1))
        assert seconds >= float(least_link_s(link, one, WIDTH)) * (1 - 1e-12)


@pytest.mark.parametrize("stages", [(4,), (2, 2), (3, 2), (2, 3), (2, 2, 2), (4, 2)])
def test_a_machine_that_runs_the_stages(stages):
    """Every stage all at once: the result is right, and rounds and bytes are as counted."""
    n = prod(stages)
    machine = Machine(n, own_parts(n))

    def digits(rank):
        found = []
        for fan_in in stages:
            found.append(rank % fan_in)
            rank //= fan_in
        return tuple(found)

    for turn in (True, False):
        for at in range(len(stages)) if turn else reversed(range(len(stages))):
            messages = []
            for d in range(n):
                mine = digits(d)
                for other in range(n):
                    its = digits(other)
                    if other == d or mine[:at] + mine[at + 1 :] != its[:at] + its[at + 1 :]:
                        continue
                    keep = its if turn else mine
                    chunks = [c for c in range(n) if digits(c)[: at + 1] == keep[: at + 1]]
                    messages.append((d, other, chunks))
            _in_rounds(machine, messages, reduce=turn)
        if turn:
            assert machine.whole(n, lambda d: [d])
    assert machine.whole(n, lambda d: range(n))
    sent = sum(2 * (f - 1) / prod(stages[: i + 1]) for i, f in enumerate(stages))
    assert set(machine.sent.values()) == {round(sent * n)}


def _in_rounds(machine, messages, reduce):
    """Messages of one stage, sender by sender, so that a receiver sums one after the other what was there before."""
    before = [dict(one) for one in machine.held]
    for a, b, chunks in messages:
        for chunk in chunks:
            here = machine.held[b].get(chunk, frozenset())
            assert not reduce or not here & before[a][chunk], "a part would be summed twice"
            machine.held[b][chunk] = here | before[a][chunk] if reduce else before[a][chunk]
        machine.sent[a] += len(chunks)


@pytest.mark.parametrize("name", ["default", "hgx-h100", "nvl72", "tpu-v4-pod", "dgx1-v100", "mi300x"])
@pytest.mark.parametrize("devices", [4, 8, 16, 64])
def test_it_is_never_slower_than_a_named_algorithm(name, devices):
    told = load_network(name)
    assert Algorithm.SYNTHESIZED not in told.algorithms
    more = told.model_copy(update={"algorithms": (*told.algorithms, Algorithm.SYNTHESIZED)})
    for collective in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER):
        times = algorithms_s(collective, SIZES, more, 100e9, devices)
        plain = algorithms_s(collective, SIZES, told, 100e9, devices)
        assert {a for a in times if a in NAMED} == set(plain)
        for algorithm, seconds in plain.items():
            assert np.array_equal(times[algorithm], seconds)
            assert (times[Algorithm.SYNTHESIZED] <= seconds * (1 + 1e-12)).all()


def test_every_way_is_the_fastest_somewhere_or_tied():
    law = {"step_s": 1e-6, "memory": 0.4, "epsilon": 0.1, "fan_in": 2.0}
    found = ways(Collective.ALL_REDUCE, network(switch(8, **law), switch(None, **law)), WIDTH, 64)
    assert len({way.words for way in found}) == len(found) > 2
    for one, other in pairwise(found):
        assert not one.law.never_slower(other.law)
        assert not other.law.never_slower(one.law)


def test_a_network_file_lists_it(tmp_path):
    path = tmp_path / "mine.yaml"
    told = network(switch(8, step_s=1e-6, memory=0.25, epsilon=0.1, fan_in=4.0))
    path.write_text(network_yaml("made up", told.tiers, told.algorithms))
    assert load_network(path).tiers[0].law.memory == 0.25
    assert Algorithm.SYNTHESIZED in load_network(path).algorithms
