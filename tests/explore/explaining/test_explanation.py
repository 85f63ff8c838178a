"""An explanation says what a direct evaluation says, and adds up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from phaze.errors import InfeasibleError, InputError
from phaze.explore.answers.main_job import evaluate, explore
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.explaining import budget_steps
from phaze.explore.explaining.budget_steps import less_power
from phaze.explore.explaining.explained_winner import ExplainedWinner
from phaze.explore.explaining.layer_bottlenecks import CAUSES
from phaze.explore.explaining.parameter_sensitivity import elasticity, sensitivity
from phaze.explore.explaining.run_explanation import against_chips, explain, kept_shares
from phaze.explore.explaining.winner_neighbours import END, MEMORY, neighbours
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.hardware.architecture import Architecture, load_architecture, to_table
from phaze.hardware.budgets import weigh
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.design_space import Axis, DesignSpace
from phaze.hardware.spaces.space_file import parse_space
from phaze.parallel.cluster import Recompute
from phaze.scheduling.passes import SolveLimits

WHOLE_ANSWERS = True


@pytest.fixture(scope="module")
def request_(tiny, small_space, network):
    return ExploreRequest(
        Task(tiny, 4, network, held={"tensor": (2,), "recomputes": (Recompute.NONE,)}),
        small_space,
        Budgets(power_w=250.0),
    )


@pytest.fixture(scope="module")
def document(request_):
    return explore(request_).document


@pytest.fixture(scope="module")
def explanation(request_, document):
    return explain(request_, document)


@pytest.fixture(scope="module")
def best_within(request_):
    """The largest throughput of the whole space within budgets, every architecture evaluated."""
    table = request_.space.table()
    found = best_points(
        Evaluator(request_.task, table), np.arange(len(table)), SolveLimits(Clock(3600.0).left)
    )
    throughput = request_.task.cluster.global_batch / found.upper_s

    def best(power_w=None, area_limit_mm2=None):
        return throughput[weigh(table, power_w, area_limit_mm2).kept].max()

    return best


def throughput(task, architecture):
    try:
        return evaluate(task, architecture).workloads[task.workload.name].throughput_samples_per_s
    except InfeasibleError:
        return None


def test_neighbours_are_what_a_direct_evaluation_says(request_, document, explanation):
    winner = Architecture(name="winner", fields=document.best.architecture)
    for neighbour in explanation.neighbours[::2]:
        moved = winner.replace("moved", **neighbour.values)
        table = to_table([moved])
        assert neighbour.throughput_samples_per_s == pytest.approx(throughput(request_.task, moved), rel=1e-9)
        assert neighbour.tdp_w == pytest.approx(float(tdp_w(table)[0]))
        assert neighbour.area_mm2 == pytest.approx(float(area_mm2(table)[0]))
        broken = {str(limit) for limit, mask in weigh(table, 250.0).over.items() if mask[0]}
        assert set(neighbour.forbidden_by) - {END, MEMORY} == broken
        assert (neighbour.over_power_w > 0) == ("power" in broken)


def test_there_is_one_step_each_way_and_it_is_a_neighbouring_option(request_, document, explanation):
    fields = document.best.architecture
    for axis in request_.space.axes:
        steps = {n.direction: n for n in explanation.neighbours if n.axis == "+".join(axis.fields)}
        options = list(axis.options)
        at = options.index(tuple(fields[name] for name in axis.fields))
        for direction, to in (("down", at - 1), ("up", at + 1)):
            if 0 <= to < len(options):
                assert tuple(steps[direction].values.values()) == options[to]
                assert steps[direction].in_space
            elif direction in steps:
                assert not steps[direction].in_space
                assert END in steps[direction].forbidden_by


def test_no_allowed_neighbour_is_faster_than_a_proven_winner(explanation):
    allowed = [n for n in explanation.neighbours if not n.forbidden_by]
    assert allowed
    assert all(n.gain <= 1e-9 for n in allowed)


CONDITIONAL = """
schema_version: 1
name: conditional
axes:
  - {fields: [tensor_cores], values: [2, 4, 8]}
  - {fields: [tensor_core_rows], values: [64, 128, 256], when: {tensor_cores: [2, 4]}, otherwise: 32}
  - {fields: [vector_cores], values: [1, 2], when: {tensor_cores: [8]}, otherwise: 3}
  - {fields: [tensor_core_columns], same_as: tensor_core_rows, times: 2}
where: ["tensor_cores * tensor_core_rows <= 512"]
"""


def test_neighbours_in_a_space_with_conditions_ties_and_constraints(tiny, network):
    space = parse_space(CONDITIONAL, "conditional.yaml")
    fields = {"tensor_cores": 4, "tensor_core_rows": 128, "vector_cores": 3, "tensor_core_columns": 256}
    chip = space.architecture(space.number(fields))
    task = Task(tiny, 4, network, held={"tensor": (2,), "recomputes": (Recompute.NONE,)})
    density = tdp_w(to_table([chip]))[0] / area_mm2(to_table([chip]))[0]
    budgets = Budgets(power_density_w_per_mm2=1.01 * float(density))
    found = neighbours(
        ExplainedWinner(ExploreRequest(task, space, budgets), chip, SolveLimits(Clock(3600.0).left))
    )
    assert {n.axis for n in found} == {"tensor_cores", "tensor_core_rows"}
    follows = {("tensor_cores", 8): {"tensor_core_rows": 32, "vector_cores": 1, "tensor_core_columns": 64}}
    for n in found:
        moved = follows.get((n.axis, n.values[n.axis]), {}) | n.values
        if n.axis == "tensor_core_rows":
            moved["tensor_core_columns"] = 2 * n.values[n.axis]
        expected = chip.replace("moved", **moved)
        table = to_table([expected])
        assert n.area_mm2 == pytest.approx(float(area_mm2(table)[0]))
        assert n.tdp_w == pytest.approx(float(tdp_w(table)[0]))
        assert n.throughput_samples_per_s == pytest.approx(throughput(task, expected), rel=1e-9)
        assert (space.constraints[0].text in n.forbidden_by) == (not space.keeps(table)[0])
        dense = n.tdp_w / n.area_mm2 > budgets.power_density_w_per_mm2
        assert ("power density" in n.forbidden_by) == dense
    limits = {limit for n in found for limit in n.forbidden_by}
    assert {"power density", space.constraints[0].text} <= limits


def test_what_binds_is_what_forbids_a_faster_neighbour(explanation):
    faster = [n for n in explanation.neighbours if n.gain is not None and n.gain > 1e-3]
    assert {b.limit for b in explanation.binding} == {limit for n in faster for limit in n.forbidden_by}
    for row in explanation.binding:
        assert any(row.best_gain == n.gain and row.limit in n.forbidden_by for n in faster)


def test_shares_of_layers_add_up(explanation):
    for row in explanation.layers:
        assert sum(getattr(row, cause) for cause in CAUSES) == pytest.approx(1.0)
        assert 0.0 <= row.waiting < 1.0
    assert sum(row.share_of_layers for row in explanation.layers) == pytest.approx(1.0)
    assert sum(explanation.breakdown.values()) == pytest.approx(1.0)


def test_more_of_a_rate_never_hurts_and_doing_everything_faster_scales_the_time(explanation):
    """Time is a sum and maximum of works over rates: the elasticities to all rates, less latencies, sum to 1.

    Less what launches take, too, which none of them moves.
    """
    found = {row.parameter: row.elasticity for row in explanation.sensitivity}
    rates = {name: value for name, value in found.items() if not name.endswith("latency_s")}
    assert min(rates.values()) >= -1e-9
    assert max(value for name, value in found.items() if name.endswith("latency_s")) <= 1e-9
    independent = ("clock_hz", "hbm_bandwidth_bytes_per_s", "link_bandwidth_bytes_per_s")
    scale_out = found["scale_out_bandwidth_bytes_per_s"]
    latencies = found["scale_up_latency_s"] + found["scale_out_latency_s"]
    assert sum(found[n] for n in independent) + scale_out - latencies == pytest.approx(0.9, abs=0.1)


def test_a_compute_bound_chip_gains_what_its_clock_gains(tiny, network):
    """Little arithmetic beside ample memory, one device: nothing but the clock matters."""
    chip = load_architecture("tpuv4").replace(
        "slow",
        tensor_cores=1,
        tensor_core_rows=16,
        tensor_core_columns=16,
        vector_cores=1,
        vector_core_alus=16,
    )
    space = DesignSpace("one", chip, (Axis(("tensor_cores",), ((1,),)),), {})
    winner = ExplainedWinner(
        ExploreRequest(Task(tiny, 1, network), space), chip, SolveLimits(Clock(3600.0).left)
    )
    found = {row.parameter: row.elasticity for row in sensitivity(winner)}
    assert found["clock_hz"] == pytest.approx(1.0, abs=0.02)
    assert found["mac_rate"] + found["vector_rate"] == pytest.approx(1.0, abs=0.05)
    assert found["mac_rate"] > 0.5
    assert found["hbm_bandwidth_bytes_per_s"] == pytest.approx(0.0, abs=0.02)
    assert found["scale_out_bandwidth_bytes_per_s"] == 0.0


def test_elasticity_of_a_power_law_is_its_exponent():
    assert elasticity(0.9**2, 1.1**2) == pytest.approx(2.0)
    assert elasticity(0.0, 1.0) is None


def test_factors_multiply_to_the_ratio(explanation, document):
    assert len(explanation.against) >= 2
    for chip in explanation.against:
        assert math.prod(factor.ratio for factor in chip.factors) == pytest.approx(chip.ratio, rel=1e-9)
        best = next(iter(document.best.workloads.values())).throughput_samples_per_s
        assert chip.ratio * chip.throughput_samples_per_s == pytest.approx(best)
        for factor in chip.factors:
            assert factor.ratio == pytest.approx(factor.winner / factor.other)


def test_kept_shares_multiply_to_the_utilisation(document):
    rows = [row.result for row in document.comparison if row.result]
    for result in (*document.best.workloads.values(), *rows):
        shares = kept_shares(result)
        assert math.prod(shares.values()) == pytest.approx(result.mfu, rel=1e-9)
        assert all(0 < share <= 1 + 1e-9 for share in shares.values())


def test_plans_and_unknown_names_are_not_compared(document):
    others = [row.model_copy(update={"name": "expert plan on the winner"}) for row in document.comparison]
    assert against_chips(document.best, others) == []


def test_less_power_is_the_best_of_the_space_within_it(request_, document, best_within):
    steps = less_power(request_, document)
    assert [step.change for step in steps] == [-25.0, -12.5, -10.0, -2.5]
    for step in steps:
        assert step.proven_gap == 0
        assert step.throughput_samples_per_s == pytest.approx(best_within(step.limit), rel=1e-9)


def test_more_of_each_budget_is_the_best_of_the_space_within_it(request_, monkeypatch, best_within):
    monkeypatch.setattr(budget_steps, "SHARES", ())
    power, area = 200.0, 300.0
    tight = replace(request_, budgets=Budgets(power, area))
    steps = budget_steps.more_budget(tight, explore(tight).document, 60.0, SilentProgress())
    assert [(step.budget, step.change) for step in steps] == [("power", 10.0), ("area", 10.0)]
    before = best_within(power, area)
    for step, best in zip(steps, (best_within(power + 10, area), best_within(power, area + 10)), strict=True):
        assert step.throughput_samples_per_s == pytest.approx(best, rel=1e-9)
        assert step.gain == pytest.approx(best / before - 1)
        assert step.proven_gap == 0


def test_a_run_of_another_model_is_refused(request_, document):
    name = request_.task.workload.name
    result = document.best.workloads[name]
    other = result.model_copy(update={"throughput_samples_per_s": 1.1 * result.throughput_samples_per_s})
    best = document.best.model_copy(update={"workloads": {name: other}})
    with pytest.raises(InputError, match="run it again"):
        explain(request_, document.model_copy(update={"best": best}))


BUFFERS = """
schema_version: 1
name: buffers
axes:
  - {fields: [tensor_cores], values: [1, 2]}
  - fields: [global_buffer_bytes, global_buffer_bytes_per_cycle]
    values: [[16MiB, 4096], [64MiB, 1024]]
"""
"""Few ports on a large buffer draw less than many on a small one, which take less area."""


def test_both_budgets_together_name_what_is_smallest_within_the_other(tiny, network):
    """Each budget can be kept alone, not both: each shortfall is what a brute force finds within the other."""
    space = parse_space(BUFFERS, "buffers.yaml")
    table = space.table()
    power, area = tdp_w(table), area_mm2(table)
    built = ~np.logical_or.reduce([m for k, m in weigh(table).over.items() if k in ("reticle", "shoreline")])
    limits = [(w, float(area[built & (power <= w)].min()) - 1.0) for w in np.sort(power[built]).tolist()]
    limit_w, limit_mm2 = next((w, mm2) for w, mm2 in limits if mm2 > area[built].min())
    with pytest.raises(InfeasibleError) as caught:
        explore(ExploreRequest(Task(tiny, 16, network), space, Budgets(limit_w, limit_mm2)))
    found = {short.what: short for short in caught.value.shortfalls}
    assert found["power"].demand == pytest.approx(power[built & (area <= limit_mm2)].min())
    assert found["area"].demand == pytest.approx(area[built & (power <= limit_w)].min())
    assert all(short.levers for short in found.values())


def test_too_little_memory_names_the_least_that_would_do(tiny, small_space, network):
    task = Task(tiny, 1, network, held={"microbatches": (1,)})
    cramped = replace(small_space, hbm_capacities_bytes=(1e8,))
    with pytest.raises(InfeasibleError) as caught:
        explore(ExploreRequest(task, cramped))
    (short,) = caught.value.shortfalls
    assert (short.limit, bool(short.levers)) == (1e8, True)
    enough = replace(small_space, hbm_capacities_bytes=(short.demand,))
    assert explore(ExploreRequest(task, enough)).document.best.workloads["tiny"].memory_bytes <= short.demand
    scarce = replace(small_space, hbm_capacities_bytes=(0.99 * short.demand,))
    with pytest.raises(InfeasibleError):
        explore(ExploreRequest(task, scarce))
