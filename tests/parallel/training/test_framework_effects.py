"""What frameworks do beside and between kernels: overlap in layers, passes over scores, gathers one by one."""

from math import inf

import numpy as np
import pytest

from phaze.cost.cost_model import CostModel
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import Framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.layer_costs import layer_costs
from phaze.parallel.training.operator_costs import OperatorCosts
from phaze.scheduling.passes import SolveLimits
from phaze.validation.measured.published_models import gpt
from phaze.workload.fusion_rules import Fusion
from phaze.workload.parallel_degrees import Parallel, Sharding

TABLE, NETWORK = to_table([load_architecture("a100-80gb")]), load_network("hgx-a100")
MODEL = gpt(2, 2048, 16, 51200, 1024)


def framework(**said):
    return Framework(name="tried", source="none", **said)


def figures(sharding, **said):
    chain, costs = MODEL.chain(4, sharding), CostModel(TABLE, NETWORK)
    links = TABLE["link_bandwidth_bytes_per_s"]
    return layer_costs(
        chain, OperatorCosts(costs, framework(**said), links), TABLE, SolveLimits(lambda: inf)
    ).alone()


def links(pass_):
    return {work.name: work.link for work in pass_.works if work.link is not None}


@pytest.mark.parametrize(("sequence", "hidden"), [(False, 1), (True, 2)])
def test_what_the_other_gradient_product_of_a_weight_hides(sequence, hidden):
    """The sum of an input's gradient and, with divided tokens, the second gather; that of the output's gradient not."""
    plain = figures(Sharding(2, sequence=sequence))
    beside = figures(Sharding(2, sequence=sequence), tensor_overlap="weight-gradient")
    (block,) = (i for i, layer in enumerate(plain.chain.layers) if layer.kind == "block.mlp")
    exchanges = len(links(plain.chain.layers[block].backward))
    before, after = (f.backward.exposed_s[Parallel.TENSOR][block] for f in (plain, beside))
    assert before > 0
    # products are longer than exchanges here, and all exchanges of a block equally long
    assert after == pytest.approx(before * (1 - hidden / exchanges), rel=1e-9)
    assert after + beside.backward.hidden_s[block] == pytest.approx(before)
    assert np.array_equal(plain.forward.exposed_s[Parallel.TENSOR], beside.forward.exposed_s[Parallel.TENSOR])


def test_passes_over_scores_cost_the_loss_alone():
    plain, read = figures(Sharding(1)), figures(Sharding(1), score_passes=10)
    more = read.forward.kernels_s - plain.forward.kernels_s
    (loss,) = np.flatnonzero([layer.kind == "loss" for layer in plain.chain.layers])
    assert np.flatnonzero(more).tolist() == [loss]
    scores = 4 * 1024 * 51200 * 2
    assert more[loss] == pytest.approx(10 * scores / 2.039e12, rel=0.4)  # shares of the bandwidth are below 1
    assert np.array_equal(read.backward.kernels_s, plain.backward.kernels_s)


def test_gathers_one_by_one_pay_for_every_start_and_every_rank():
    sharded = ParallelPlan(microbatch=1, data_parallel=64, zero=Zero.WEIGHTS)

    def gather_s(**said):
        found = Estimator(MODEL, TABLE, Cluster(64, 64, NETWORK), framework(**said)).stage_times(sharded)
        return float(found.forward.zero_s.sum())

    once, often, copied = gather_s(), gather_s(gathers=12), gather_s(gathers=12, gather_rank_s=1e-5)
    assert once < often < 12 * once
    groups = 4  # the embeddings, two blocks, the head; nothing else has parameters of its own
    assert copied - often >= groups * 12 * 64 * 1e-5 - 1e-9


def test_only_kernels_with_nothing_else_to_do_make_a_weight_gradient():
    model = gpt(2, 2048, 16, 51200, 1024, fusion=frozenset(Fusion))
    backward = model.chain(1, Sharding(1)).layers[1].backward
    alone = {work.name for work in backward.works if work.makes_weight_gradient}
    assert alone and all("dX" not in name for name in alone)
    assert any(".dX" in work.name and work.name.endswith(".dW") for work in backward.works)
