"""Uneven load of experts: chances, copies and their places against drawn tokens and enumeration."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.workload.expert_load import ExpertLoad, _dealt, copied


@given(skew=st.floats(0.05, 4), experts=st.integers(2, 300), share=st.floats(0, 1))
def test_chances_are_those_of_a_power_law_that_no_token_chooses_twice(skew, experts, share):
    chosen = max(1, round(share * experts))
    chances = ExpertLoad(skew).chances(experts, chosen)
    assert chances.sum() == pytest.approx(chosen)
    assert chances.max() <= 1 + 1e-12
    assert (np.diff(chances) <= 1e-12).all()
    free = np.flatnonzero(chances < 1 - 1e-9)
    if len(free) > 1:
        ratio = chances[free[0]] / chances[free[-1]]
        assert ratio == pytest.approx(((free[-1] + 1) / (free[0] + 1)) ** skew)


def _drawn(chances, tokens, rng):
    """Rows of every expert, each token's choice by systematic sampling, whose chances are exact (Madow 1949)."""
    rows = np.zeros(len(chances))
    for start in rng.random(tokens):
        order = rng.permutation(len(chances))
        ends = np.concatenate([[0.0], np.cumsum(chances[order])])
        rows[order] += np.floor(ends[1:] - start) - np.floor(ends[:-1] - start)
    return rows


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("tokens", [3, 40])
def test_the_fullest_device_against_drawn_tokens(devices, tokens):
    """Experts as numbered: the device has the most wanted one and an even choice of the others."""
    load, experts, chosen = ExpertLoad(0.8), 16, 2
    found = load.busiest(experts, chosen, tokens, devices)
    chances, rng = load.chances(experts, chosen), np.random.default_rng(5)
    own = np.arange(16) if devices == 1 else np.array([0, 3, 8, 13])
    trials = [_drawn(chances, tokens, rng)[own] for _ in range(600)]
    assert found.places == len(own)
    assert found.rows == pytest.approx(np.mean([t.sum() for t in trials]), rel=0.05)
    # drawn tokens are sent to at most one row each here, as in the law; the number is rounded up
    assert found.reached == pytest.approx(np.mean([(t > 0).sum() for t in trials]), abs=1.1)


def test_copies_and_places_against_all_others():
    """Few experts on two devices: no other copies and places leave the fullest device 7 % less to do."""
    for skew, redundant in product((0.3, 0.8, 1.5), (0, 2)):
        load, experts, devices = ExpertLoad(skew, redundant), 6, 2
        chances = load.chances(experts, 2)
        places, best = (experts + redundant) // devices, math.inf
        for doubled in combinations(range(experts), redundant):
            each = [*range(experts), *doubled]
            for first in combinations(range(len(each)), places):
                rest = [i for i in range(len(each)) if i not in first]
                loads = [sum(chances[each[i]] / each.count(each[i]) for i in part) for part in (first, rest)]
                best = min(best, max(loads))
        found = float(_dealt(load, experts, 2, devices).sum(axis=1).max())
        assert best - 1e-12 <= found <= 1.07 * best


@given(
    skew=st.floats(0.1, 2),
    redundant=st.integers(0, 64),
    experts=st.sampled_from([8, 32, 96]),
    devices=st.sampled_from([2, 4, 8]),
)
def test_every_token_goes_somewhere_and_no_device_has_an_expert_twice_for_nothing(
    skew, redundant, experts, devices
):
    load = ExpertLoad(skew, redundant)
    dealt = _dealt(load, experts, 2, devices)
    places = -(-(experts + redundant) // devices)
    assert dealt.shape == (devices, places)
    assert dealt.sum() == pytest.approx(2)
    copies = copied(load.chances(experts, 2), places * devices, devices)
    counts = np.bincount([at for _, at in copies], minlength=experts)
    assert counts.min() >= 1
    assert counts.max() <= devices
    assert counts.sum() == min(places * devices, experts * devices)


def test_copies_even_out_the_load():
    """256 experts on 32 devices as in DeepSeek-V3's report: 32 copies leave the fullest one within 1 % of the mean."""
    rows = [
        ExpertLoad(0.6, copies).busiest(256, 8, 4096, 32).rows / (4096 * 8 / 32) for copies in (None, 0, 32)
    ]
    assert rows[0] > 2
    assert 1.5 < rows[1] < 2.5
    assert rows[2] < 1.01


@pytest.mark.parametrize(
    ("values", "what"),
    [((0.0,), "skew of experts is 0"), ((-1.0,), "skew"), ((9.0,), "at most 4"), ((1.0, -1), "redundant")],
)
def test_what_makes_no_sense_is_refused(values, what):
    with pytest.raises(InputError, match=what):
        ExpertLoad(*values)
