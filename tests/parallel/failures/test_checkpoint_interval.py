"""Checkpoint intervals: Daly's published values, the exact optimum, and where the time goes, simulated."""

from __future__ import annotations

from dataclasses import astuple
from math import exp, inf, log1p

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import lambertw

from phaze.parallel.failures.checkpoint_interval import Interruptions

MINUTE_S = 60.0


@pytest.mark.parametrize(("mtbf_min", "published_min"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_intervals_that_daly_published(mtbf_min, published_min):
    """Figures 3 to 5 of doi 10.1016/j.future.2004.11.016: a checkpoint takes 5 min, a restart 10."""
    job = Interruptions(mtbf_min * MINUTE_S, 5 * MINUTE_S, 10 * MINUTE_S)
    assert job.daly_s() / MINUTE_S == pytest.approx(published_min, rel=0.006)
    assert job.optimal_s() == pytest.approx(job.daly_s(), rel=0.004)


@pytest.mark.parametrize("ratio", [1e-9, 1e-4, 0.02, 0.3, 1.0, 4.0, 30.0])
def test_the_optimum_is_exact(ratio):
    job = Interruptions(1000.0, 1000.0 * ratio, 50.0)
    found = job.optimal_s() / 1000.0
    assert found == pytest.approx(1 + lambertw(-exp(-1 - ratio)).real, rel=1e-6 if ratio < 1e-6 else 1e-9)
    if ratio < 4:
        assert found + log1p(-found) == pytest.approx(-ratio, rel=1e-9)
        brute = minimize_scalar(
            lambda s: -job.shares(s).work, bounds=(found * 300, found * 3000), method="bounded"
        )
        assert job.shares().work >= -brute.fun * (1 - 1e-12)
        assert job.shares().work >= max(job.shares(job.young_s()).work, job.shares(job.daly_s()).work)


def test_shares_are_those_of_a_job_that_is_played():
    job = Interruptions(600.0, 20.0, 90.0, planned_mtbf_s=5000.0)
    random, spent, done = np.random.default_rng(1), np.zeros(5), 0.0
    for _ in range(20_000):
        segment, done = _segment(random, job, job.optimal_s()), done + 1
        spent[:4] += segment
        spent[4] += segment.sum() / job.planned_mtbf_s * (job.checkpoint_s + job.restart_s)
    shares = astuple(job.shares())[1:]
    assert sum(shares) == pytest.approx(1)
    assert spent / spent.sum() == pytest.approx(shares, abs=0.004)


def _segment(random, job, work_s):
    """Seconds of work, checkpoint, work that is lost and restarts until one interval is done."""
    lost, restarts = 0.0, 0.0
    while (fails_s := random.exponential(job.mtbf_s)) < work_s + job.checkpoint_s:
        lost += fails_s
        while (again_s := random.exponential(job.mtbf_s)) < job.restart_s:
            restarts += again_s
        restarts += job.restart_s
    return np.array([work_s, job.checkpoint_s, lost, restarts])


def test_ends():
    assert astuple(Interruptions(inf, 10.0, 60.0).shares()) == (inf, 1, 0, 0, 0, 0)
    assert Interruptions(100.0, 0.0, 0.0).shares().work == 1
    free = Interruptions(100.0, 0.0, 20.0).shares()
    assert (free.interval_s, free.work) == (0, pytest.approx(exp(-0.2)))
    assert Interruptions(100.0, 1e-9, 20.0).shares().work == pytest.approx(free.work, rel=1e-4)
    assert Interruptions(1.0, 1.0, 1e4).shares().work == 0
    assert sum(astuple(Interruptions(1.0, 1.0, 1e4, 50.0).shares())[1:]) == pytest.approx(1)


def test_less_trouble_is_never_worse():
    random = np.random.default_rng(3)
    for _ in range(200):
        m, c, r, planned = 10 ** random.uniform([1, -2, -2, 2], [6, 5, 5, 7])
        work = Interruptions(m, c, r, planned).shares().work
        for better in (
            (2 * m, c, r, planned),
            (m, c / 2, r, planned),
            (m, c, r / 2, planned),
            (m, c, r, 2 * planned),
        ):
            assert Interruptions(*better).shares().work >= work * (1 - 1e-12)
