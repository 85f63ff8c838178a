"""Energy of many plans at once is that of its definition; no plan at all falls below the bounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from small_cases import small_decoder, varied_architectures

from phaze.cost.collective import wire_bytes
from phaze.cost.energy import Events, dynamic_j, optimizer_events, pass_events, static_w
from phaze.cost.model import CostModel
from phaze.hardware.network import load_network
from phaze.placement.cluster import Cluster, FixedDegrees, Recompute
from phaze.placement.energy import ChainEnergy, Drivers, drivers
from phaze.placement.least import least_drivers, least_peak_bytes
from phaze.placement.plan import Plan, StagePlan
from phaze.placement.planner import Planner
from phaze.scheduling.layers import TimedChain
from phaze.workload.degrees import Sharding
from phaze.workload.work import Collective
from phaze.workload.workload import Mode

DEVICES = 6
SETTINGS = [(1, 1, Recompute.FULL), (1, 2, Recompute.FULL), (2, 1, Recompute.NONE), (1, 2, Recompute.NONE)]


def placed(folder, mode, microbatch, width, recompute):
    """A timed chain and a planner with so little memory that recomputation and several stages matter."""
    workload, table, network = small_decoder(folder, mode), varied_architectures(), load_network()
    timed = TimedChain(workload.chain(microbatch, width), CostModel(table, network), table)
    cluster = Cluster(DEVICES, workload.global_batch(DEVICES), network)
    redo = recompute if mode is Mode.TRAINING else Recompute.NONE
    planner = Planner(timed.chain, workload.numerics, cluster, redo, 1e30, FixedDegrees())
    return timed, replace(planner, memory_bytes=1.5 * planner.least_memory_bytes())


def every_plan(planner):
    """All data degrees, all cuts, that fit in memory; times are made up."""
    last, memory, cluster = len(planner.index) - 1, planner.memory, planner.cluster
    total = cluster.global_batch // planner.chain.microbatch
    for d in range(1, min(cluster.devices, total) + 1):
        each = -(-total // d)
        for depth in range(1, min(cluster.devices // d // planner.chain.tensor_parallel, last + 1) + 1):
            for inner in combinations(range(1, last + 1), depth - 1):
                ranges = [(a, b - 1) for a, b in pairwise((0, *inner, last + 1))]
                stages = tuple(
                    stage(planner, *r, each if memory.keeps_cache else min(depth - i, each), depth - i > 1)
                    for i, r in enumerate(ranges)
                )
                if max(s.memory_bytes for s in stages) <= memory.memory_bytes:
                    name = planner.chain
                    yield Plan(
                        name.microbatch, name.tensor_parallel, planner.recompute, d, each, stages, 0, 0, 1.0
                    )


def stage(planner, first, last, held, inner):
    memory = planner.memory
    plain = memory.peak_bytes(first, last, 1, recompute=False) <= memory.memory_bytes
    redo = memory.recompute and (inner or not plain)
    parameters = int(planner.parameters[first : last + 1].sum())
    return StagePlan(first, last, redo, 0.0, 0.0, parameters, memory.peak_bytes(first, last, held, redo))


def defined_j(timed, planner, plan, row):
    """Energy as the definition has it: stage by stage, layer by layer, on one architecture."""
    where, chain, cluster = np.array([row]), timed.chain, planner.cluster
    work, events, width = Events(), Events(), plan.tensor_parallel
    for s in plan.stages:
        for unique in chain.index[s.first : s.last + 1]:
            forward = pass_events(timed.forward[unique].costs, where)
            work = work + forward + pass_events(timed.backward[unique].costs, where)
            work = work + forward * int(s.recompute)
        gradient = s.parameters * planner.numerics.gradient_bytes
        reduced = Events(link_bytes=2 * wire_bytes(Collective.ALL_REDUCE, gradient, plan.data_parallel))
        step = optimizer_events(s.parameters, planner.numerics)
        events = events + (step + reduced) * (width * plan.data_parallel)
    for s in plan.stages[:-1]:
        cut = chain.layers[chain.index[s.last]].output_bytes
        gathered = width * wire_bytes(Collective.ALL_GATHER, cut, width)
        ways = 2 if planner.training else 1
        microbatches = cluster.global_batch / plan.microbatch
        events = events + Events(link_bytes=2 * microbatches * ways * (cut + gathered))
    groups = cluster.global_batch / plan.microbatch * width
    table = timed.table.take(where)
    standing_j = float(static_w(table)[0]) * cluster.devices * plan.iteration_s
    return float(dynamic_j(work * groups + events, table)[0]) + standing_j


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("setting", SETTINGS)
def test_no_plan_falls_below_the_bounds(tmp_path, mode, setting):
    timed, planner = placed(tmp_path, mode, *setting)
    plans = list(every_plan(planner))
    assert plans
    rows = np.arange(len(timed.table))
    energy = ChainEnergy(timed, planner.cluster, planner.numerics)
    one_each = np.stack(
        [
            energy.energy_j(rows, drivers([plan] * len(rows), timed.chain))
            for plan in plans[:: len(plans) // 40 + 1]
        ]
    )
    least = energy.energy_j(rows, replace(least_drivers(planner), iteration_s=np.ones(1)))
    assert (least <= one_each * (1 + 1e-12)).all()
    assert (one_each.min(axis=0) < 1.5 * least).all()
    of_all = energy.energy_j(np.zeros(len(plans), dtype=np.intp), drivers(plans, timed.chain))
    assert (least[0] <= of_all * (1 + 1e-12)).all()
    peak, smallest = least_peak_bytes(planner), min(p.memory_bytes for p in plans)
    assert 0.8 * smallest < peak <= smallest


def test_energy_of_many_plans_is_that_of_the_definition(tmp_path):
    for setting in SETTINGS:
        timed, planner = placed(tmp_path, Mode.TRAINING, *setting)
        plans = list(every_plan(planner))[::7][:24]
        rows = np.arange(len(plans))
        energy = ChainEnergy(timed, planner.cluster, planner.numerics).energy_j(
            rows, drivers(plans, timed.chain)
        )
        expected = [defined_j(timed, planner, plan, row) for row, plan in enumerate(plans)]
        np.testing.assert_allclose(energy, expected, rtol=1e-12)


def test_ranks_that_share_a_sample_reduce_their_gradients(tmp_path):
    """A context group of two holds the same parameters, so that d replicas of it are 2 d ranks of one reduction."""
    workload, table, network = small_decoder(tmp_path), varied_architectures(), load_network()
    chain = workload.chain(1, Sharding(1, context=2))
    timed = TimedChain(chain, CostModel(table, network), table)
    energy = ChainEnergy(timed, Cluster(DEVICES, 12, network), workload.numerics)
    rows, nothing = np.arange(len(table)), np.zeros((1, len(chain.layers)))

    def spent_j(replicas):
        plan = Drivers(nothing, np.array([float(replicas)]), np.zeros(1), np.zeros(1))
        return energy.energy_j(rows, plan)

    def tail_j(replicas):
        ranks, reduced = 2 * replicas, chain.parameters * workload.numerics.gradient_bytes
        sent = 2 * wire_bytes(Collective.ALL_REDUCE, reduced, ranks)
        step = optimizer_events(chain.parameters, workload.numerics) + Events(link_bytes=sent)
        return dynamic_j(step * ranks, table)

    assert spent_j(3) - spent_j(1) == pytest.approx(tail_j(3) - tail_j(1))
    assert (tail_j(1) > dynamic_j(optimizer_events(chain.parameters, workload.numerics) * 2, table)).all()
