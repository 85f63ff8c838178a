"""What strategies leave to hosts: it is counted there, it has to fit, and it never takes room on devices."""

from itertools import combinations, product

import numpy as np
import pytest
from strategy_cases import estimator, framework, small_gpt

from phaze.errors import InputError
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import Offload, ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_batches.memory_fit import fits

CHOICES = [frozenset(some) for n in range(4) for some in combinations(Offload, n)]
SHAPES = [
    ParallelPlan(2, data_parallel=8),
    ParallelPlan(2, data_parallel=8, recompute=Recompute.FULL),
    ParallelPlan(1, data_parallel=2, pipeline_parallel=4, reshards=False),
    ParallelPlan(1, data_parallel=2, pipeline_parallel=2, schedule=Schedule.INTERLEAVED, chunks=2),
    ParallelPlan(8, data_parallel=2, pipeline_parallel=4, schedule=Schedule.GPIPE),
]


def changed(strategy, **what):
    return type(strategy)(**{n: getattr(strategy, n) for n in strategy.__slots__} | what)


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
@pytest.mark.parametrize("every", [True, False])
def test_offload_never_takes_room_on_a_device(shape, every):
    e = estimator(software=framework(reduces_every_microbatch=every, fragmentation=0.1))
    for zero, offload in product(Zero, CHOICES):
        plain, away = (e.memory(changed(shape, zero=zero, offload=o)) for o in (frozenset(), offload))
        for before, after in zip(plain, away, strict=True):
            assert after.total_bytes <= before.total_bytes
            assert (after.host_bytes > 0) == bool(offload)


@pytest.mark.parametrize("zero", Zero)
def test_what_leaves_a_device_is_at_its_host(zero):
    e = estimator()
    for offload in CHOICES:
        plain, away = (e.memory(changed(SHAPES[2], zero=zero, offload=o)) for o in (frozenset(), offload))
        for before, after in zip(plain, away, strict=True):
            states = [p.weights_bytes + p.gradients_bytes + p.optimizer_bytes for p in (before, after)]
            gone = before.activations_bytes if Offload.ACTIVATIONS in offload else 0.0
            assert after.host_bytes == pytest.approx(states[0] - states[1] + gone)


def test_results_that_recompute_spares_lie_at_the_host_they_are_sent_to():
    e, full = estimator(), ParallelPlan(2, data_parallel=8, recompute=Recompute.FULL)
    kept, away = (e.memory(changed(full, **{to: frozenset({"up"})}))[0] for to in ("kept", "offloaded"))
    plain, inputs = e.memory(full)[0], e.memory(changed(full, offloaded=frozenset({"input"})))[0]
    assert away.host_bytes == kept.activations_bytes - plain.activations_bytes > 0
    assert inputs.host_bytes == plain.activations_bytes - inputs.activations_bytes > 0


def test_a_host_that_is_too_small_is_refused():
    e = estimator(chip="a100")
    strategy = ParallelPlan(2, data_parallel=8, offload=frozenset({Offload.OPTIMIZER}))
    needed = e.iteration(strategy).host_bytes
    small = estimator(chip="a100")
    small.table.columns["host_memory_capacity_bytes"][:] = 0.9 * needed
    with pytest.raises(InputError, match=r"GiB offloaded by a device do not fit into the .* GiB of its host"):
        small.iteration(strategy)
    fit, sharded = fits(
        small.layouts, strategy, (Zero.NONE, Zero.WEIGHTS), np.inf, small.host_capacity_bytes(strategy)
    )
    assert fit.plan is None
    assert fit.least_host_bytes == needed
    assert sharded.plan is not None


def test_a_host_that_does_not_tell_its_memory_is_refused():
    e = estimator(workload=small_gpt(2))
    e.table.columns["host_memory_capacity_bytes"][:] = np.nan
    with pytest.raises(InputError, match="host_memory_capacity_bytes"):
        e.iteration(ParallelPlan(2, data_parallel=8, offload=frozenset({Offload.WEIGHTS})))
