"""ZeRO and what frameworks do beside kernels, on small models."""

import pytest
from strategy_cases import estimator, framework, small_gpt

from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import list_frameworks, load_framework
from phaze.parallel.parallel_plan import ParallelPlan, RankOrder, Zero
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Attention

WHOLE = ParallelPlan(1, data_parallel=8, zero=Zero.WEIGHTS)
HIDING = {"hides_gathers": True, "hides_reduction": True}


def iteration(strategy, **changes):
    return estimator(software=framework(**changes)).iteration(strategy)


def test_ideal_hides_nothing_of_gathers_and_reductions():
    found = estimator()
    plain, zero = (found.iteration(s) for s in (ParallelPlan(1, data_parallel=8), WHOLE))
    exchanges = found.exchanges(WHOLE)
    chain, division = found.layer_costs(WHOLE).chain, found.division(WHOLE)
    groups = [sum(chain.layers[u].parameters for u in chain.index[a : b + 1]) for a, b in division.groups]
    each = [2 * exchanges.gather_s(2.0 * n) + exchanges.reduce_s(4.0 * n) for n in groups]
    assert zero.time.hidden_s == 0
    exchanged_s = zero.time.gather_s + zero.time.reduction_s
    assert exchanged_s == pytest.approx(zero.microbatches * sum(each).item())
    assert zero.iteration_s > plain.iteration_s


def test_hidden_gathers_are_counted_and_shorten_the_iteration():
    exposed, hidden = iteration(WHOLE), iteration(WHOLE, **HIDING)
    assert hidden.iteration_s < exposed.iteration_s
    assert hidden.time.hidden_s > 0
    assert hidden.time.total_s == pytest.approx(hidden.iteration_s)


def test_interference_costs_time():
    slow, fast = (iteration(WHOLE, **HIDING, interference=share).iteration_s for share in (0.3, 0.0))
    assert slow > fast


def test_weights_that_stay_whole_are_gathered_once_for_all_microbatches():
    dropped = ParallelPlan(1, data_parallel=4, pipeline_parallel=2, zero=Zero.WEIGHTS)
    kept = ParallelPlan(1, data_parallel=4, pipeline_parallel=2, zero=Zero.WEIGHTS, reshards=False)
    often, once = (estimator(workload=small_gpt(12)).iteration(s) for s in (dropped, kept))
    assert once.time.gather_s < often.time.gather_s
    assert once.memory_bytes > often.memory_bytes


def test_memory_of_divided_states_and_whole_weights():
    plain, divided = (estimator().iteration(s).memory[0] for s in (ParallelPlan(1, data_parallel=8), WHOLE))
    for part in ("weights_bytes", "gradients_bytes", "optimizer_bytes"):
        assert getattr(divided, part) == pytest.approx(getattr(plain, part) / 8)
    found = estimator()
    chain, division = found.layer_costs(WHOLE).chain, found.division(WHOLE)
    sizes = [sum(chain.layers[u].parameters for u in chain.index[a : b + 1]) for a, b in division.groups]
    block = next(size for size, repeats in zip(sizes, division.body, strict=True) if repeats)
    ends = sum(size for size, repeats in zip(sizes, division.body, strict=True) if not repeats)
    assert divided.buffers_bytes == pytest.approx(2 * 2 * block + (2 + 2) * ends)


def test_attention_vectors_and_metrics_take_longer_where_the_framework_says_so():
    found = {
        name: iteration(WHOLE, **{name: 2.0}).iteration_s - iteration(WHOLE).iteration_s
        for name in ("vector_stretch", "score_passes")
    }
    assert all(more > 0 for more in found.values())
    flash = [
        estimator(
            software=framework(attention_stretch=s), workload=small_gpt(attention=Attention.FLASH)
        ).iteration(WHOLE)
        for s in (1.0, 2.0)
    ]
    assert flash[1].iteration_s > flash[0].iteration_s


def test_full_recompute_that_stops_early_saves_the_last_product_and_a_gather():
    sharded = ParallelPlan(
        2, data_parallel=2, sharding=Sharding(4, sequence=True), recompute=Recompute.FULL, zero=Zero.WEIGHTS
    )
    whole, early = iteration(sharded), iteration(sharded, stops_early=True)
    assert early.time.recompute_s < whole.time.recompute_s
    assert early.memory_bytes == whole.memory_bytes


def test_recompute_by_operator_keeps_less_and_runs_longer():
    strategy = ParallelPlan(2, data_parallel=8, recompute=Recompute.SELECTIVE)
    flash = small_gpt(attention=Attention.FLASH)
    none, some = (
        estimator(software=framework(keeps_products=keeps), workload=flash).iteration(strategy)
        for keeps in (False, True)
    )
    assert some.memory[0].activations_bytes < none.memory[0].activations_bytes
    assert some.iteration_s > none.iteration_s


def test_a_loss_of_several_kernels_needs_memory():
    more, plain = (iteration(WHOLE, score_copies=copies).memory[0] for copies in (3.0, 0.0))
    chain = estimator().layer_costs(WHOLE).chain
    scores = next(layer.saved_bytes for layer in chain.layers if layer.kind == "loss")
    assert more.working_bytes - plain.working_bytes == pytest.approx(3 * scores)


@pytest.mark.parametrize("name", list_frameworks())
def test_packaged_frameworks_load_and_run(name):
    assert estimator(software=load_framework(name)).iteration(WHOLE).iteration_s > 0


def test_context_ranks_and_replicas_are_one_group_of_neighbours():
    alone = ParallelPlan(1, data_parallel=8, sharding=Sharding(2, sequence=True))
    divided = ParallelPlan(1, data_parallel=2, sharding=Sharding(2, sequence=True, context=4))
    e = estimator(devices=16)
    assert divided.replica_stride == 2
    assert e.exchanges(divided).reduce_s(1e9) == e.exchanges(alone).reduce_s(1e9)


def test_replicas_with_pipelines_between_them_are_far_apart():
    far = ParallelPlan(*(1, 2, 2), sharding=Sharding(1, context=2), order=RankOrder.PIPELINE_INNER)
    assert far.replica_stride == far.data_stride == 4
    assert ParallelPlan(1, 1, 2, far.sharding, order=far.order).replica_stride == 1
