"""Exchanges of many strategies and payloads at once, against the cost of each collective alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.cost.collectives.collective_times import fastest_s
from phaze.hardware.cluster_network import list_networks, load_network
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.training.exchanges.communication import Communication
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.work import Collective

LINK = 300e9
MANY = settings(max_examples=60, deadline=None, derandomize=True)
STRATEGIES = st.builds(
    lambda data, pipeline, tensor, zero: ParallelPlan(
        1, data_parallel=data, pipeline_parallel=pipeline, sharding=Sharding(tensor), zero=zero
    ),
    st.sampled_from([1, 2, 3, 8, 12, 64]),
    st.sampled_from([1, 2, 5, 16]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(list(Zero)),
)
PAYLOADS = st.lists(st.sampled_from([0.0, 1.0, 3e4, 2.5e6, 1e9, 7e11]), min_size=1, max_size=4)


def alone_s(kind, payload, network, size, stride, link=LINK):
    """One collective; nothing to send takes no time."""
    return float(fastest_s(kind, payload, network, link, size, stride)) if payload and size > 1 else 0.0


@MANY
@given(st.sampled_from(list_networks()), st.lists(STRATEGIES, min_size=1, max_size=5), PAYLOADS)
def test_each_takes_what_it_takes_alone(name, strategies, payloads):
    network, sent = load_network(name), np.array(payloads)
    e = Communication(network, LINK, tuple(strategies))
    gathered, tied = e.gather_s(sent), e.tie_s(sent)
    for v, s in enumerate(strategies):
        groups = s.shard_group or s.replicas, s.replica_stride
        apart = min(s.pipeline_parallel, 2), s.pipeline_stride * (s.pipeline_parallel - 1)
        for x, payload in enumerate(payloads):
            alone = alone_s(Collective.ALL_GATHER, payload, network, *groups)
            assert gathered[v, x] == pytest.approx(alone, rel=1e-12)
            summed = alone_s(Collective.ALL_REDUCE, payload, network, *apart)
            assert tied[v, x] == pytest.approx(summed, rel=1e-12)


def test_chips_without_links_exchange_for_ever_but_nothing_at_once():
    network, strategy = load_network("default"), ParallelPlan(1, data_parallel=4)
    (seconds,) = Communication(network, 0.0, (strategy,)).gather_s(np.array([0.0, 1.0, 1e9]))
    assert seconds[0] == 0.0
    assert (seconds[1:] >= 1e30).all()


def test_a_law_is_known_once_for_all_strategies_of_a_group():
    known: dict = {}
    network, strategies = load_network("default"), tuple(ParallelPlan(m, data_parallel=8) for m in (1, 2, 4))
    Communication(network, LINK, strategies, known).gather_s(np.array([1e6, 2e6]))
    assert [key[0] for key in known] == [Collective.ALL_GATHER]
