"""What the host that launches kernels adds to the passes of a pipeline."""

import numpy as np
import pytest
from strategy_cases import estimator, framework

from phaze.parallel.parallel_plan import ParallelPlan

LAUNCH_S = 1e-5


def passes_s(**software):
    return estimator(software=framework(**software)).stage_times(ParallelPlan(2)).forward.pass_s


def launches():
    e = estimator()
    figures = e.layer_costs(ParallelPlan(2))
    return figures.forward.launches[list(figures.chain.index)].sum()


def test_a_blocking_host_adds_every_launch():
    blocked = passes_s(dispatch_s=LAUNCH_S, blocking=True)
    assert blocked == pytest.approx(passes_s() + launches() * LAUNCH_S)


@pytest.mark.parametrize("waits", [False, True])
def test_a_host_that_does_not_block_is_never_slower(waits):
    for dispatch_s in (1e-7, 1e-6, 1e-5, 1e-4):
        blocked = passes_s(dispatch_s=dispatch_s, blocking=True)
        assert np.all(passes_s(dispatch_s=dispatch_s, waits=waits) <= blocked)


def test_short_launches_are_hidden_unless_the_host_blocks():
    assert passes_s(dispatch_s=1e-9, waits=True) == pytest.approx(passes_s())
    assert np.all(passes_s(dispatch_s=1e-9, blocking=True) > passes_s())
