"""What frameworks do with the exchanges and rows of experts, and where their replicas lie."""

import numpy as np
import pytest
from strategy_cases import estimator, framework

from phaze.cost.cost_model import CostModel
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s
from phaze.parallel.parallel_plan import ParallelPlan, RankOrder, Zero
from phaze.parallel.training.alike_layers import figures_of, layer_figures
from phaze.parallel.training.operator_costs import OperatorCosts
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload_loader import load_workload

SPREAD = ParallelPlan(1, data_parallel=8, sharding=Sharding(expert=8))
MODEL = load_workload("mixtral-8x7b", sequence_length=1024)


def iteration(strategy=SPREAD, **changes):
    return estimator(software=framework(**changes), workload=MODEL).iteration(strategy)


def test_equal_rows_take_less_of_the_links():
    plain, merged = iteration(), iteration(merges_copies=True)
    # two of eight experts: a token has a chance of 1 in 16 of two in the other domain of four, once is enough
    assert 0.7 * plain.time.expert_s < merged.time.expert_s < 0.95 * plain.time.expert_s
    assert merged.time.product_s == plain.time.product_s


def test_hidden_exchanges_of_experts():
    plain, hidden = iteration(), iteration(hides_experts=0.75)
    assert hidden.time.expert_s == pytest.approx(plain.time.expert_s / 4)
    assert hidden.iteration_s == pytest.approx(plain.iteration_s - 0.75 * plain.time.expert_s)


def test_rows_of_experts_pass_through_memory():
    plain, moved = iteration(), iteration(expert_passes=3)
    rate = float(hbm_bandwidth_bytes_per_s(to_table([load_architecture("a100")]))[0])
    rows, hidden, inside, microbatches = 2 * 1024, 4096, 14336, 2
    widths = (hidden + 2 * inside) + (
        inside + hidden
    )  # of both products, forward and for their inputs' gradients
    assert moved.iteration_s - plain.iteration_s == pytest.approx(
        3 * 2 * 2 * 32 * rows * widths * microbatches / rate, rel=1e-3
    )


def test_folded_experts_have_all_devices_of_a_stage():
    inner = Sharding(2, sequence=True, context=2, expert=8, folded=True)
    one = ParallelPlan(1, data_parallel=4, pipeline_parallel=2, sharding=inner)
    assert (one.expert_ranks, one.expert_replicas, one.expert_stride) == (16, 2, 8)
    apart = ParallelPlan(1, data_parallel=4, sharding=Sharding(2, True, 1, 2))
    assert (apart.expert_ranks, apart.expert_replicas, apart.expert_stride) == (4, 2, 4)
    spread = ParallelPlan(1, 4, 2, Sharding(2, True, 1, 8, folded=True), order=RankOrder.PIPELINE_INNER)
    assert spread.expert_stride == 2 * 8


def test_whole_experts_take_the_memory_of_divided_ones():
    """Four tensor ranks with two experts each, or eight quarters: the same parameters, the same states."""
    whole = ParallelPlan(1, 2, sharding=Sharding(4, True, 1, 8, folded=True), zero=Zero.OPTIMIZER)
    parts = ParallelPlan(1, 2, sharding=Sharding(4, True, 1, 2), zero=Zero.OPTIMIZER)
    first, second = (iteration(s).memory[0] for s in (whole, parts))
    assert first.weights_bytes == pytest.approx(second.weights_bytes, rel=1e-3)
    assert first.optimizer_bytes == pytest.approx(second.optimizer_bytes, rel=1e-3)


def test_layers_that_chains_share_are_costed_once(monkeypatch):
    """Chains that deal experts in other ways cost their layers with experts alone, the same as by themselves."""
    costed, plans = [], [ParallelPlan(1, 8, sharding=Sharding(expert=experts)) for experts in (2, 4)]
    alone = [estimator(workload=MODEL).layer_costs(plan).forward for plan in plans]
    monkeypatch.setattr(
        "phaze.parallel.training.layer_costs.figures_of",
        lambda layers, *given: costed.extend(layers) or figures_of(layers, *given),
    )
    e = estimator(workload=MODEL)
    together = [e.layer_costs(plan).forward for plan in plans]
    assert [one.stacked.tolist() for one in together] == [one.stacked.tolist() for one in alone]
    experts = [layer for layer in costed if layer.expert_parameters]
    assert len(costed) == len(set(map(id, costed))) == len(e.chain(plans[0]).layers) + len(experts) / 2


@pytest.mark.parametrize(
    "changes", [{}, {"merges_copies": True, "hides_experts": 0.5, "expert_passes": 3, "expert_room": 1.2}]
)
def test_layers_of_equal_structure_are_costed_side_by_side_to_the_last_bit(monkeypatch, changes):
    chips, runs, e = to_table([load_architecture(name) for name in ("a100", "h100")]), [], estimator()
    model = CostModel(chips, e.cluster.network)
    links = np.asarray(chips["link_bandwidth_bytes_per_s"], dtype=np.float64)
    costs = OperatorCosts(model, framework(**changes), links)
    rates = hbm_bandwidth_bytes_per_s(chips), model.factors.simt_of >= 0
    widths = [(tensor, experts) for tensor in (1, 2) for experts in (1, 2, 4)]
    shardings = [Sharding(tensor, tensor > 1, expert=experts) for tensor, experts in widths]
    shapes = [(batch, sharding) for batch in (1, 2, 3) for sharding in shardings]
    layers = {id(one): one for shape in shapes for one in MODEL.chain(*shape).layers}.values()
    alone = [figures_of([one], costs, rates, frozenset())[0].tolist() for one in layers]
    monkeypatch.setattr(
        "phaze.parallel.training.alike_layers.layer_figures",
        lambda forward, *given: runs.append(len(forward.alike)) or layer_figures(forward, *given),
    )
    assert [one.tolist() for one in figures_of(list(layers), costs, rates, frozenset())] == alone
    assert sum(runs) == len(layers)
    assert len(runs) <= len(layers) / 3
