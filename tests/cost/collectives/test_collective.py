"""Ring collectives against a simulation of the ring, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from cost_cases import NETWORK
from hypothesis import given
from hypothesis import strategies as st

from phaze.cost.collectives.collective_times import collective_s, send_s, tier, wire_bytes
from phaze.workload.work import Collective


def simulate_all_reduce(devices):
    """Run the ring on one number per device and chunk; returns (steps, chunks each device sent)."""
    data = np.arange(devices * devices, dtype=float).reshape(devices, devices)
    total = data.sum(axis=0)
    steps = 0
    for phase in ("reduce", "gather"):
        for step in range(devices - 1):
            sent = [(d, (d - step + (phase == "gather")) % devices) for d in range(devices)]
            values = [data[d, chunk] for d, chunk in sent]
            for (d, chunk), value in zip(sent, values, strict=True):
                receiver = (d + 1) % devices
                data[receiver, chunk] = value + (data[receiver, chunk] if phase == "reduce" else 0)
            steps += 1
    np.testing.assert_allclose(data, np.tile(total, (devices, 1)))
    return steps


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_all_reduce_is_what_the_ring_does(devices):
    steps = simulate_all_reduce(devices)
    payload, bandwidth, latency = 6e6, 1e9, 1e-6
    expected = steps * (payload / devices / bandwidth + latency)
    assert collective_s(Collective.ALL_REDUCE, payload, devices, bandwidth, latency) == pytest.approx(
        expected
    )


@given(st.floats(1, 1e12), st.integers(1, 5000), st.floats(1e6, 1e12), st.floats(0, 1e-3))
def test_all_reduce_is_reduce_scatter_then_all_gather(payload, devices, bandwidth, latency):
    both, scatter, gather, exchange = (
        collective_s(c, payload, devices, bandwidth, latency) for c in list(Collective)[:4]
    )
    assert both == pytest.approx(scatter + gather)
    assert exchange == scatter
    assert wire_bytes(Collective.ALL_REDUCE, payload, devices) <= 2 * payload


def test_tiers_are_counted_from_the_inside():
    links = np.array([300e9, 900e9])
    assert [NETWORK.spanned(span) for span in (1, 8, 9, 10**6)] == [0, 0, 1, 1]
    inside, latency = tier(NETWORK, 0, links)
    assert inside.tolist() == links.tolist()
    assert latency == 1e-6
    outside, latency = tier(NETWORK, 1, links)
    assert outside.tolist() == [50e9, 50e9]
    assert latency == 5e-6


def test_send_and_a_chip_without_links():
    assert send_s(3e9, 1e9, 2e-6) == pytest.approx(3.000002)
    assert np.isinf(send_s(1.0, 0.0, 1e-6))
    assert collective_s(Collective.ALL_REDUCE, 1e6, 1, 0.0, 1e-6) == 0.0
