"""GenModel's constants from collectives of known algorithms: what made the rows is found again, and predicts others."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.cost.collectives.collective_times import algorithms_s, ways
from phaze.errors import InputError
from phaze.hardware.cluster_network import Network, network_yaml
from phaze.hardware.network_tiers import Algorithm, LinkLaw, Tier
from phaze.validation.fits.collective_network_fit import ASIDE, fit_network, read_samples
from phaze.validation.fits.staged_collective_fit import StagedRow, fit_stages
from phaze.workload.work import Collective

WIDTH = 12.5e9
BY = ((4, "4"), (4, "2x2"), (8, "ring"), (8, "8"), (8, "2x4"), (8, "2x2x2"), (12, "12"), (12, "4x3"), (16, "16"),
      (16, "halving-doubling"), (16, "4x4"))  # fmt: skip
SIZES = (1e4, 1e5, 1e6, 1e7, 1e8)
GATHERS = Collective.ALL_GATHER, Collective.ALL_REDUCE


def network(**law):
    tier = Tier(devices=None, bandwidth_bytes_per_s=WIDTH, law=LinkLaw(**law))
    return Network(name="truth", tiers=(tier,), algorithms=tuple(Algorithm))


def rows_of(truth, noise=0.0):
    """Rows as the collectives of the model take: named ones, and every way in stages that it finds is among these."""
    rng, found = np.random.default_rng(7), []
    for collective, (ranks, word), size in product(GATHERS, BY, SIZES):
        if word in {*Algorithm}:
            seconds = algorithms_s(collective, size, truth, WIDTH, ranks)[Algorithm(word)]
        else:
            seconds = by_hand(truth.tiers[0].law, collective, [int(f) for f in word.split("x")], size)
        found.append(StagedRow(collective, ranks, size, float(seconds) * (1 + noise * rng.normal()), word))
    rng.shuffle(found)
    return found


def by_hand(law, collective, stages, size):
    """Stage by stage, there and back."""
    seconds, parts = 0.0, 1
    sums = collective is not Collective.ALL_GATHER
    for f in stages:
        times = 2 if collective is Collective.ALL_REDUCE else 1
        sent = times * (f - 1) / f * (1 + law.epsilon * max(f - 1 - law.fan_in, 0))
        moved = sent + sums * (law.gamma * (f - 1) / f + law.memory * (f + 1) / f)
        seconds += times * law.step_s + moved * size / parts / WIDTH
        parts *= f
    return seconds


@settings(max_examples=25, deadline=None)
@given(
    st.floats(1e-6, 1e-4),
    st.floats(0.1, 2),
    st.floats(0.1, 2),
    st.floats(0.02, 0.5),
    st.integers(2, 10),
    st.booleans(),
)
def test_what_made_the_rows_is_found_again(step_s, gamma, memory, epsilon, fan_in, known):
    truth = network(step_s=step_s, gamma=gamma, memory=memory, epsilon=epsilon, fan_in=float(fan_in))
    found = fit_stages("again", rows_of(truth), WIDTH if known else None, ASIDE)
    (tier,) = found.network.tiers
    assert tier.bandwidth_bytes_per_s == pytest.approx(WIDTH, rel=1e-5)
    for name in ("step_s", "gamma", "memory", "epsilon", "fan_in"):
        assert getattr(tier.law, name) == pytest.approx(getattr(truth.tiers[0].law, name), rel=1e-4), name
    assert found.after_pct < 1e-4


def test_rows_that_scatter():
    """Errors are as large as what scatters, and much larger without memory and incast, as GenModel found."""
    truth = network(step_s=1e-5, gamma=0.1, memory=0.3, epsilon=0.05, fan_in=4.0)
    found = fit_stages("noisy", rows_of(truth, noise=0.02), WIDTH, ASIDE)
    assert found.fitted_pct < 2.5
    assert found.after_pct < 3
    assert found.plain_pct > 2 * found.after_pct
    assert 3 <= found.network.tiers[0].law.fan_in <= 6  # senders that were measured: 3, 7, 11, 15
    truly, again = (ways(Collective.ALL_REDUCE, one, WIDTH, 24) for one in (truth, found.network))
    size = np.array(1e7)
    assert (
        min(truly, key=lambda w: w.law.seconds(size)).words
        == min(again, key=lambda w: w.law.seconds(size)).words
    )


def test_a_table_with_algorithms(tmp_path):
    truth = network(step_s=1e-5, memory=0.3, epsilon=0.05, fan_in=4.0)
    lines = [
        f"{r.collective.value},{r.ranks},{r.payload_bytes:.0f},{r.time_s * 1e6},{r.algorithm}"
        for r in rows_of(truth)
    ]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["collective,ranks,bytes,time_us,algorithm", *lines]))
    found = fit_network("mine", read_samples(path), WIDTH)
    assert found.before == "no memory and no incast"
    assert found.after_pct < 0.01 < found.before_pct
    text = network_yaml("mine", found.network.tiers, found.network.algorithms)
    assert "memory: 0.3\n" in text
    assert "- synthesized" in text


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("all_reduce,8,1000,9,4x4", "product is 8"),
        ("all_reduce,8,1000,9,8x1", "product is 8"),
        ("all_reduce,8,1000,9,spiral", "none of ring"),
        ("all_gather,8,1000,9,tree", "does not run by tree"),
        ("all_reduce,12,1000,9,halving-doubling", "does not run"),
        ("all_reduce,8,1000,9,", "some rows only"),
    ],
)
def test_algorithms_that_are_not_known(tmp_path, row, told):
    path = tmp_path / "mine.csv"
    good = [f"all_reduce,8,{10**n},{n + 1},ring" for n in range(3, 9)]
    path.write_text("\n".join(["collective,ranks,bytes,time_us,algorithm", *good, row]))
    with pytest.raises(InputError, match=told):
        fit_network("mine", read_samples(path), WIDTH)
