"""A table of tokens that is the head's as well: once where both are on a device, summed between two."""

import numpy as np
import pytest
from strategy_cases import estimator, framework, small_gpt

from phaze.cost.collectives.collective_times import fastest_s
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.work import Collective

TABLE = 30000 * 512
STATE_BYTES = 18  # weight, gradient and Adam's state per parameter
ONE_STAGE = [
    ParallelPlan(1),
    ParallelPlan(1, sharding=Sharding(4)),
    ParallelPlan(1, data_parallel=4, zero=Zero.WEIGHTS),
]
JOINED = [
    ParallelPlan(1, pipeline_parallel=2, schedule=Schedule.ZB_V, chunks=2),
    ParallelPlan(1, pipeline_parallel=2, schedule=Schedule.DUALPIPE),
]


def estimators(**software):
    return [
        estimator(software=framework(**software), workload=small_gpt(tied=tied)) for tied in (True, False)
    ]


def state_bytes(found):
    return found.weights_bytes + found.gradients_bytes + found.optimizer_bytes


@pytest.mark.parametrize("strategy", ONE_STAGE[:2])
def test_one_device_keeps_it_once(strategy):
    tied, two = (state_bytes(e.memory(strategy)[0]) for e in estimators())
    assert two - tied == STATE_BYTES * TABLE / strategy.sharding.tensor


def test_zero_gathers_it_once():
    tied, two = (e.iteration(ONE_STAGE[2]) for e in estimators())
    assert tied.time.gather_s < two.time.gather_s
    assert tied.memory_bytes < two.memory_bytes - 2 * TABLE


@pytest.mark.parametrize("strategy", JOINED)
def test_schedules_that_bring_both_ends_to_one_device(strategy):
    tied, two = ([state_bytes(one) for one in e.memory(strategy)] for e in estimators())
    copies = strategy.schedule.weight_copies  # DualPipe runs a copy of the model from either end
    assert np.subtract(two, tied).tolist() == [STATE_BYTES * TABLE, STATE_BYTES * TABLE * (copies - 1)]


def test_two_devices_keep_it_each_and_sum_its_gradients():
    strategy = ParallelPlan(1, data_parallel=2, pipeline_parallel=4)
    tied, two = (e.iteration(strategy) for e in estimators(reduced_bytes=4.0))
    assert tied.memory_bytes == two.memory_bytes
    e, apart = estimators()[0], 2 * 3  # device numbers between the first and the last stage
    links = float(e.table["link_bandwidth_bytes_per_s"][0])
    (summed,) = fastest_s(Collective.ALL_REDUCE, [4.0 * TABLE], e.cluster.network, links, 2, apart)
    assert tied.iteration_s - two.iteration_s == pytest.approx(summed)
    assert tied.time.reduction_s - two.time.reduction_s == pytest.approx(summed)


def test_chains_tell_what_is_tied():
    chain = small_gpt(tied=True).chain(1, Sharding(4))
    assert chain.tied_parameters == TABLE // 4
    assert chain.joined.parameters == small_gpt(tied=True).parameter_count / 4 + _undivided()
    assert small_gpt().chain(1, 1).joined is small_gpt().chain(1, 1)


def _undivided():
    """Three quarters of what tensor ranks all keep: norms, biases after sums, positions."""
    norms, biases, positions = 9 * 2 * 512, 4 * 2 * 512, 256 * 512
    return 0.75 * (norms + biases + positions)


@pytest.mark.parametrize("strategy", JOINED)
def test_nothing_is_summed_where_both_ends_lie_on_one_device(strategy):
    tied, two = (e.iteration(strategy).time.reduction_s for e in estimators(reduced_bytes=4.0))
    assert tied == two == 0
