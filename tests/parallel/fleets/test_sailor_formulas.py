"""Sailor's cost model (arXiv 2504.17096) as a second way to know what pipelines across pools take, send and pay.

Its formulas are of stages alone: they are written here anew and fed with the passes and transfers of our stages.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from small_fleets import TIED_BYTES, every_pipeline, fleet_of, pipelines_of, search_of

from phaze.hardware.cluster_network import two_tiers
from phaze.parallel.fleets.fleet_file import Fleet, ZoneLink
from phaze.parallel.fleets.stage_options import Common
from phaze.parallel.parallel_plan import Zero
from phaze.parallel.pipelines.pipeline_simulation import pipeline_s

ZONES_USD_PER_GB = 0.01
"""Sailor's price of what goes from a zone to another of one region."""
FAR = ZoneLink(1e9, 1e-4, ZONES_USD_PER_GB / 1e9)


def sailor_s(microbatches, passes_s, sends_s):
    """(m - 1) max (c + send) + sum of send + sum of c, of stages; a send is an activation and a gradient."""
    each = np.append(sends_s, 0.0)
    return (microbatches - 1) * (passes_s + each).max() + each.sum() + passes_s.sum()


def passes_of(pipeline):
    return pipeline.stage_times.forward.pass_s + pipeline.stage_times.turned_s


@pytest.mark.parametrize("link", [None, FAR])
def test_no_pipeline_takes_longer_than_by_sailor(task, link):
    """Sailor has stages wait for what they send; in the simulation it goes beside the passes of others."""
    _, search = search_of(fleet_of(link=link), task)
    shares = []
    for one in every_pipeline(search):
        passes_s, m = passes_of(one), one.microbatches
        said_s = sailor_s(m, passes_s, 2 * one.stage_times.transfer_s)
        assert m * passes_s.max() * (1 - 1e-12) <= one.timeline.makespan_s <= said_s * (1 + 1e-12)
        shares.append(one.timeline.makespan_s / said_s)
    assert len(shares) > 100
    assert min(shares) < 0.9  # it is more than a bound of every pipeline


def test_where_nothing_is_sent_and_the_last_stage_is_the_slowest_both_agree(task):
    """Then the last stage is never idle between its first pass and its last, and all before it is on the way."""
    _, search = search_of(fleet_of(), task)
    agreed = 0
    for one in every_pipeline(search):
        passes_s, n = passes_of(one), len(one.places)
        if passes_s[-1] == passes_s.max():
            free = replace(one.chunks, transfer_s=np.zeros(n - 1))
            taken_s = pipeline_s(one.plan.schedule, one.microbatches, n, free)
            assert taken_s == pytest.approx(sailor_s(one.microbatches, passes_s, np.zeros(n - 1)), rel=1e-9)
            agreed += 1
    assert agreed > 20


def test_egress_is_paid_by_the_gigabyte(task):
    """Activations and gradients of every sample over every boundary between zones, and tied gradients once."""
    _, search = search_of(fleet_of((2, 2), FAR), task)
    for one in every_pipeline(search):
        zones = [place.pool.zone for place in one.places]
        crossings = sum(a != b for a, b in pairwise(zones))
        passed = 2 * crossings * 8 * 256 * 512 * 2  # 8 samples of 256 tokens of 512 numbers in bf16
        ends = 2 * TIED_BYTES * one.plan.data_parallel if zones[0] != zones[-1] else 0
        assert one.egress_usd == pytest.approx((passed + ends) / 1e9 * ZONES_USD_PER_GB, rel=1e-12)


@pytest.mark.parametrize("replicas", [2, 4])
def test_gradients_are_summed_in_a_ring(task, replicas):
    """2 (D - 1) times the seconds of a D-th of the gradients of a stage, where steps cost nothing."""
    rate = 1e8
    slow = two_tiers(2, rate, 0.0, rate, 0.0)
    fleet = fleet_of((4, 4))
    fleet = Fleet("slow", tuple(replace(pool, network=slow) for pool in fleet.pools), {})
    _, search = search_of(fleet, task)
    chosen = [(member, 1) for member in search.members]
    (one,) = pipelines_of(search, Common(1, replicas, Zero.NONE), (2, 2), chosen)
    ties = [place.estimator.exchanges(place.plan).tie_s(TIED_BYTES)[0, 0] for place in one.places]
    spent = one.gradient_sync.reduction_s[0] + one.gradient_sync.hidden_s[0] - max(ties)
    gradients = 2 * (
        task.workload.parameter_count + 8000 * 512
    )  # bytes in bf16; both ends have the embedding
    assert spent.sum() == pytest.approx(2 * (replicas - 1) * gradients / replicas / rate, rel=1e-6)
