"""Every algorithm against a simulation of it, chunk by chunk: the result is right, and so are steps and bytes."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import linprog

from phaze.cost.collectives.collective_algorithms import bandwidth_share, levels, terms
from phaze.hardware.cluster_network import Network, load_network, two_tiers
from phaze.hardware.network_tiers import Algorithm, Tier, Topology
from phaze.workload.routed_copies import Copies
from phaze.workload.work import Collective

SWITCH = Network(name="switch", tiers=(Tier(devices=None),))


class Machine:
    """Devices that hold chunks, as the sets of ranks whose parts are summed in them, and count what they send."""

    def __init__(self, devices, held):
        self.held = [dict(held(d)) for d in range(devices)]
        self.sent = Counter()
        self.steps = 0

    def step(self, messages, reduce):
        """All of (sender, receiver, chunks) at once, from what was held before."""
        moving = [(a, b, {c: self.held[a][c] for c in chunks}) for a, b, chunks in messages]
        for a, b, chunks in moving:
            for chunk, ranks in chunks.items():
                here = self.held[b].get(chunk, frozenset())
                assert not reduce or not here & ranks, "a part would be summed twice"
                self.held[b][chunk] = here | ranks if reduce else ranks
            self.sent[a] += len(chunks)
        self.steps += 1

    def whole(self, devices, wanted):
        everyone = frozenset(range(devices))
        return all(self.held[d][c] == everyone for d in range(devices) for c in wanted(d))


def own_parts(devices):
    return lambda d: {c: frozenset({d}) for c in range(devices)}


def ring(machine, n, reduce, first):
    for step in range(n - 1):
        machine.step([(d, (d + 1) % n, [(d - step + first) % n]) for d in range(n)], reduce)


def halving(machine, n):
    """Recursive halving: partners far apart first; device d ends with chunk d."""
    distance = n // 2
    while distance:
        messages = []
        for d in range(n):
            partner = d ^ distance
            mine = [c for c in range(n) if c // (2 * distance) == d // (2 * distance)]
            messages.append((d, partner, [c for c in mine if c // distance == partner // distance]))
        machine.step(messages, reduce=True)
        distance //= 2


def doubling(machine, n):
    distance = 1
    while distance < n:
        machine.step(
            [(d, d ^ distance, [c for c in range(n) if c // distance == d // distance]) for d in range(n)],
            reduce=False,
        )
        distance *= 2


def simulate(collective, algorithm, n):
    machine = Machine(n, own_parts(n))
    gathering = collective in (Collective.ALL_GATHER, Collective.ALL_REDUCE)
    last = -1 if algorithm is Algorithm.RING else 0
    if collective is not Collective.ALL_GATHER:
        if algorithm is Algorithm.RING:
            ring(machine, n, True, last)
        else:
            halving(machine, n)
        assert machine.whole(n, lambda d: [d])
    else:
        machine = Machine(n, lambda d: {d: frozenset(range(n))})
    if gathering:
        ring(machine, n, False, 0) if algorithm is Algorithm.RING else doubling(machine, n)
        assert machine.whole(n, lambda d: range(n))
    return machine


@pytest.mark.parametrize("devices", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("algorithm", [Algorithm.RING, Algorithm.HALVING_DOUBLING])
@pytest.mark.parametrize(
    "collective", [Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER]
)
def test_scatter_and_gather(collective, algorithm, devices):
    if algorithm is Algorithm.HALVING_DOUBLING and devices & (devices - 1):
        return
    machine = simulate(collective, algorithm, devices)
    (level,) = levels(SWITCH, devices)
    found = terms(collective, algorithm, level, devices)
    assert found.steps == machine.steps
    assert {found.sent * devices} == set(machine.sent.values())


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_pairwise_exchange(devices):
    messages = Counter()
    received = {d: {(d, d)} for d in range(devices)}
    for step in range(1, devices):
        for d in range(devices):
            received[(d + step) % devices].add((d, (d + step) % devices))
            messages[d] += 1
    assert all(received[d] == {(a, d) for a in range(devices)} for d in range(devices))
    (level,) = levels(SWITCH, devices)
    found = terms(Collective.ALL_TO_ALL, Algorithm.PAIRWISE, level, devices)
    assert (found.steps, found.sent * devices) == (devices - 1, messages[0])
    at_once = terms(Collective.ALL_TO_ALL, Algorithm.DIRECT, level, devices)
    assert (at_once.steps, at_once.sent, at_once.senders) == (1, found.sent, devices - 1)


@pytest.mark.parametrize(("domains", "below", "copies"), [(2, 1, 1), (4, 1, 3), (3, 2, 2), (2, 4, 3)])
def test_equal_rows_are_sent_once_to_every_domain(domains, below, copies):
    """Every choice of receivers there is, from the point of view of a device of the first domain."""
    network = two_tiers(below, 1e9, 1e-6, 1e9, 1e-6) if below > 1 else SWITCH
    level = levels(network, domains * below)[-1]
    choices = list(product(range(domains * below), repeat=copies))
    sent = sum(len({d // below for d in chosen} - {0}) for chosen in choices)
    found = terms(Collective.ALL_TO_ALL, Algorithm.PAIRWISE, level, domains * below, Copies(copies))
    assert found.sent == pytest.approx(sent / len(choices) / copies)


@pytest.mark.parametrize(
    ("groups", "chosen", "copies", "domains", "places"),
    [(4, 2, 3, 2, 1), (4, 2, 3, 4, 1), (4, 3, 3, 8, 2), (2, 1, 3, 4, 2), (6, 2, 3, 4, 2), (6, 4, 3, 4, 2)],
)
def test_rows_for_some_groups_of_experts_reach_fewer_domains(groups, chosen, copies, domains, places):
    """Every choice of groups and of `places` experts in each of them; domains have their experts in a row."""
    share, counts = groups * places // domains, []
    for some in combinations(range(groups), chosen):
        experts = [g * places + e for g in some for e in range(places)]
        counts += [len({e // share for e in picked} - {0}) for picked in product(experts, repeat=copies)]
    level = levels(SWITCH, domains)[-1]
    rows = Copies(copies, groups, chosen)
    found = terms(Collective.ALL_TO_ALL, Algorithm.PAIRWISE, level, domains, rows).sent * copies
    if groups % domains == 0 or domains % groups == 0:
        assert found == pytest.approx(sum(counts) / len(counts))
    else:  # domains that begin within a group have parts of two groups instead of one whole and one in part
        assert found == pytest.approx(sum(counts) / len(counts), rel=0.06)
    assert (
        found
        <= terms(Collective.ALL_TO_ALL, Algorithm.PAIRWISE, level, domains, Copies(copies)).sent * copies
    )


@pytest.mark.parametrize("devices", [2, 3, 4, 7, 8])
def test_two_trees_send_at_most_twice_the_vector(devices):
    """A heap-ordered tree and its mirror image, half of the vector each: up to the parent, down to the children."""
    sent, depth = Counter(), 0
    for number in ((lambda d: d), (lambda d: devices - 1 - d)):
        for child in range(1, devices):
            sent[number(child)] += 0.5
            sent[number((child - 1) // 2)] += 0.5
            depth = max(depth, (child + 1).bit_length() - 1)
    (level,) = levels(SWITCH, devices)
    found = terms(Collective.ALL_REDUCE, Algorithm.TREE, level, devices)
    assert max(sent.values()) <= found.sent
    assert found.steps >= 2 * depth


@pytest.mark.parametrize(("nodes", "each"), [(2, 4), (4, 2), (3, 4)])
def test_a_ring_over_nodes_shares_their_adapters(nodes, each):
    """As many rings as a node has devices, each leaving the node through another one's adapter."""
    n = nodes * each
    group = levels(two_tiers(each, 1.0, 0.0, 1.0, 0.0), n)
    assert [round(level.members) for level in group] == [each, nodes]
    crossed = Counter()
    for rotation in range(each):
        order = [node * each + (slot + rotation) % each for node in range(nodes) for slot in range(each)]
        for a, b in zip(order, [*order[1:], order[0]], strict=True):
            if a // each != b // each:
                crossed[a] += 2 * (n - 1) / n / each  # an all-reduce, its share of the vector
    found = terms(Collective.ALL_REDUCE, Algorithm.RING, group[1], n)
    np.testing.assert_allclose(list(crossed.values()), found.sent)
    assert sum(terms(Collective.ALL_REDUCE, Algorithm.RING, level, n).steps for level in group) == 2 * (n - 1)


def test_rings_of_a_cube_mesh():
    """Six links per device: one ring of a triangle of single links uses one link either way, of six."""
    cube = load_network("dgx1-v100").tiers[0]
    shares = {n: round(6 * bandwidth_share(level_of(cube, n), Collective.ALL_REDUCE), 6) for n in range(2, 9)}
    # pairs and rings by hand from the list of links; five devices close no ring
    assert shares == {2: 1, 3: 2, 4: 4, 5: 1.6, 6: 2, 7: 4, 8: 6}


def level_of(tier, members):
    (level,) = levels(Network(name="one", tiers=(tier,)), members)
    return level


def test_shares_of_other_topologies():
    ring_of_8 = Tier(devices=8, topology=Topology.RING)
    assert bandwidth_share(level_of(ring_of_8, 8), Collective.ALL_REDUCE) == 1
    assert (
        bandwidth_share(level_of(ring_of_8, 4), Collective.ALL_REDUCE) == 0.5
    )  # a line: both directions share it
    assert bandwidth_share(level_of(ring_of_8, 8), Collective.ALL_TO_ALL) == 0.5  # two hops on average
    torus = Tier(devices=64, topology=Topology.TORUS, dims=(4, 4, 4))
    assert bandwidth_share(level_of(torus, 64), Collective.ALL_REDUCE) == 1
    assert bandwidth_share(level_of(torus, 16), Collective.ALL_REDUCE) == pytest.approx(2 / 3)
    everyone = Tier(devices=8, topology=Topology.FULLY_CONNECTED)
    assert bandwidth_share(level_of(everyone, 8), Collective.ALL_REDUCE) == 1
    assert bandwidth_share(level_of(everyone, 3), Collective.ALL_REDUCE) == pytest.approx(2 / 7)
    tree = Tier(devices=None, topology=Topology.FAT_TREE, oversubscription=2.0)
    assert bandwidth_share(level_of(tree, 8), Collective.ALL_TO_ALL) == 0.5


def test_groups_that_do_not_divide_are_spread_evenly():
    group = levels(two_tiers(8, 1.0, 0.0, 1.0, 0.0), 12)
    assert [level.members for level in group] == [6, 2]
    assert np.prod([level.members for level in group]) == 12
    assert [level.tier.devices for level in levels(two_tiers(8, 1.0, 0.0, 1.0, 0.0), 4, stride=8)] == [None]


@pytest.mark.parametrize("groups", [2, 3, 4, 6, 8])
def test_a_dragonfly_goes_round(groups):
    """Every group sends to the next: straight on over one link, or over a third group, as a linear program has it."""
    pairs = [(a, b) for a in range(groups) for b in range(groups) if a != b]
    sends = [(a, (a + 1) % groups) for a in range(groups)]
    paths = [
        ((a, b),) if via in (a, b) else ((a, via), (via, b))
        for a, b in sends
        for via in range(groups)
        if via != a
    ]
    of = [send for send in sends for via in range(groups) if via != send[0]]
    # what every send gets (the last variable) is at most the sum of its paths; links carry one
    rows = [[-1.0 * (o == send) for o in of] + [1.0] for send in sends]
    rows += [[float(pair in path) for path in paths] + [0.0] for pair in pairs]
    limits = [0.0] * len(sends) + [1.0] * len(pairs)
    best = -linprog([0.0] * len(paths) + [-1.0], A_ub=rows, b_ub=limits).fun
    tier = Tier(devices=groups, topology=Topology.DRAGONFLY)
    group = levels(Network(name="one", tiers=(tier,)), 2)
    assert (groups - 1) * bandwidth_share(group[0], Collective.SEND_RECV) == pytest.approx(best)
    assert bandwidth_share(level_of(tier, groups), Collective.ALL_TO_ALL) == 1
    assert bandwidth_share(level_of(tier, 2), Collective.ALL_REDUCE) == pytest.approx(1 / (groups - 1))


def test_cubes_that_optical_switches_join():
    """TPU v4: blocks of 4 x 4 x 4 and more are closed whatever they are a part of (Jouppi et al., ISCA 2023)."""
    fixed, joined = (
        Tier(devices=4096, topology=Topology.TORUS, dims=(16, 16, 16), cube=cube) for cube in (None, 4)
    )
    for members in (64, 128, 512, 4096):
        assert bandwidth_share(level_of(joined, members), Collective.ALL_REDUCE) == 1
    assert bandwidth_share(level_of(fixed, 64), Collective.ALL_REDUCE) == pytest.approx(1.5 / 3)
    assert bandwidth_share(level_of(joined, 64), Collective.ALL_TO_ALL) == pytest.approx(1 / 3)
    assert bandwidth_share(level_of(joined, 512), Collective.ALL_TO_ALL) == pytest.approx(
        1 / 3 / 2
    )  # 8 x 8 x 8
    assert bandwidth_share(level_of(joined, 16), Collective.ALL_REDUCE) == pytest.approx(
        1 / 3
    )  # two open lines
    assert bandwidth_share(level_of(fixed, 4096), Collective.ALL_TO_ALL) == bandwidth_share(
        level_of(joined, 4096), Collective.ALL_TO_ALL
    )
