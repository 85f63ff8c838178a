"""How long gradients have to hide behind the end of a pipeline."""

from dataclasses import replace

import pytest
from strategy_cases import estimator, framework, small_gpt

from phaze.hardware.cluster_network import two_tiers
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule

PLAIN = ParallelPlan(1, data_parallel=4, pipeline_parallel=2, zero=Zero.OPTIMIZER)
CHUNKED = replace(PLAIN, schedule=Schedule.INTERLEAVED, chunks=4)


def iteration(strategy):
    software = framework(hides_reduction=True, hides_gathers=True)
    slow = two_tiers(4, 1e9, 1e-6, 1e9, 1e-6)
    return estimator(batch=32, software=software, network=slow, workload=small_gpt(8)).iteration(strategy)


def test_interleaved_pipelines_end_chunk_by_chunk():
    plain, chunked = iteration(PLAIN), iteration(CHUNKED)
    exposed = [i.time.reduction_s + i.time.gather_s for i in (plain, chunked)]
    hidden = [i.time.hidden_s for i in (plain, chunked)]
    assert exposed[0] + hidden[0] == pytest.approx(exposed[1] + hidden[1])
    # behind (1 + 3 x 2) / 4 passes instead of one, but for the last of four blocks
    assert hidden[1] == pytest.approx(7 / 4 * hidden[0])
