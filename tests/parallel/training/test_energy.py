"""Energy of many plans at once is that of its definition."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import pytest
from small_cases import small_decoder, varied_architectures

from phaze.cost.collectives.collective_times import wire_bytes
from phaze.cost.cost_model import CostModel
from phaze.cost.pass_energy import Events, dynamic_j, optimizer_events, pass_events, static_w
from phaze.hardware.cluster_network import load_network
from phaze.hardware.silicon.package_power import tdp_w
from phaze.parallel.cluster import Cluster
from phaze.parallel.training.iteration_energy import ChainEnergy, Drivers
from phaze.scheduling.layers import TimedChain
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.work import Collective
from phaze.workload.workload import Mode

DEVICES = 6
SETTINGS = [(1, 1), (1, 2), (2, 1)]


@dataclass(frozen=True)
class Cuts:
    """A plan as energy sees it: (first layer, last layer, whether it recomputes) of every stage, and replicas."""

    stages: tuple[tuple[int, int, bool], ...]
    data: int
    iteration_s: float


def placed(folder, mode, microbatch, width):
    """A timed chain, the cluster and the numerics of its workload."""
    workload, table, network = small_decoder(folder, mode), varied_architectures(), load_network()
    timed = TimedChain(workload.chain(microbatch, width), CostModel(table, network), table)
    return timed, Cluster(DEVICES, workload.global_batch(DEVICES), network), workload.numerics


def some_plans(layers, training):
    """Cuts into one to three stages, with and without recompute in all but the last; times are made up."""
    for depth in (1, 2, 3):
        for inner in list(combinations(range(1, layers), depth - 1))[::5]:
            ends = (0, *inner, layers)
            for data in (1, 2):
                for again in (False, True) if training else (False,):
                    stages = tuple(
                        (a, b - 1, again and k + 1 < depth) for k, (a, b) in enumerate(pairwise(ends))
                    )
                    yield Cuts(stages, data, 0.5 + depth)


def drivers(plans, chain):
    """What of the plans energy depends on, counted here."""
    again = [[u for a, b, redo in p.stages if redo for u in chain.index[a : b + 1]] for p in plans]
    cut = [sum(chain.layers[chain.index[b]].output_bytes for _, b, _ in p.stages[:-1]) for p in plans]
    return Drivers(
        np.array([[one.count(u) for u in range(len(chain.layers))] for one in again], dtype=float),
        np.array([float(p.data) for p in plans]),
        np.array(cut, dtype=float),
        np.array([p.iteration_s for p in plans]),
    )


def defined_j(timed, cluster, numerics, plan, row):
    """Energy as the definition has it: stage by stage, layer by layer, on one architecture."""
    where, chain = np.array([row]), timed.chain
    work, events, width = Events(), Events(), chain.tensor_parallel
    for first, last, redo in plan.stages:
        held = chain.index[first : last + 1]
        for unique in held:
            forward = pass_events(timed.forward[unique].costs, where)
            work = work + forward + pass_events(timed.backward[unique].costs, where)
            work = work + forward * int(redo)
        parameters = sum(chain.layers[unique].parameters for unique in held)
        gradient = parameters * numerics.gradient_bytes
        reduced = Events(link_bytes=2 * wire_bytes(Collective.ALL_REDUCE, gradient, plan.data))
        step = optimizer_events(parameters, numerics)
        events = events + (step + reduced) * (width * plan.data)
    training = any(layer.backward is not None for layer in chain.layers)
    microbatches = cluster.global_batch / chain.microbatch
    for _, last, _ in plan.stages[:-1]:
        cut = chain.layers[chain.index[last]].output_bytes
        gathered = width * wire_bytes(Collective.ALL_GATHER, cut, width)
        events = events + Events(link_bytes=2 * microbatches * (1 + training) * (cut + gathered))
    table = timed.table.take(where)
    standing_j = float(static_w(table)[0]) * cluster.devices * plan.iteration_s
    spent_j = float(dynamic_j(work * (microbatches * width) + events, table)[0]) + standing_j
    most_w = float(tdp_w(table)[0]) if table["simt"][0] else np.inf
    return min(spent_j, most_w * cluster.devices * plan.iteration_s)


@pytest.mark.parametrize("mode", list(Mode))
def test_energy_of_many_plans_is_that_of_the_definition(tmp_path, mode):
    for setting in SETTINGS:
        timed, cluster, numerics = placed(tmp_path, mode, *setting)
        plans = list(some_plans(len(timed.chain.index), mode is Mode.TRAINING))[: len(timed.table)]
        assert len(plans) > 10
        rows = np.arange(len(plans))
        energy = ChainEnergy(timed, cluster, numerics).energy_j(rows, drivers(plans, timed.chain))
        expected = [defined_j(timed, cluster, numerics, plan, row) for row, plan in enumerate(plans)]
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
        return energy.work_j(rows, plan)

    def tail_j(replicas):
        ranks, reduced = 2 * replicas, chain.parameters * workload.numerics.gradient_bytes
        sent = 2 * wire_bytes(Collective.ALL_REDUCE, reduced, ranks)
        step = optimizer_events(chain.parameters, workload.numerics) + Events(link_bytes=sent)
        return dynamic_j(step * ranks, table)

    assert spent_j(3) - spent_j(1) == pytest.approx(tail_j(3) - tail_j(1))
    assert (tail_j(1) > dynamic_j(optimizer_events(chain.parameters, workload.numerics) * 2, table)).all()
