"""Cuts of graphs into stages whose longest is shortest: against every partition, and of graphs that are coarsened."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from random import Random

import networkx
import numpy as np
import pytest
from branching_cases import every_partition
from phaze.solvers.placement.general import GraphCuts


def depth_of(stages, edges):
    home = {layer: number for number, stage in enumerate(stages) for layer in stage}
    ways = networkx.DiGraph((home[u], home[v]) for u, v in edges if home[u] != home[v])
    ways.add_nodes_from(range(len(stages)))
    assert networkx.is_directed_acyclic_graph(ways)
    return networkx.dag_longest_path_length(ways) + 1


def random_graph(random, count):
    edges = {(u, v) for v in range(count) for u in range(v) if random.random() < 1.5 / count}
    return np.array([float(random.randint(1, 5)) for _ in range(count)]), tuple(sorted(edges))


@pytest.mark.parametrize("seed", range(10))
def test_the_longest_stage_is_shortest_for_every_number_of_stages_and_depth(seed):
    random = Random(seed)
    seconds, edges = random_graph(random, random.randint(3, 7))
    least = defaultdict(lambda: np.inf)
    for parts in range(2, 6):
        for stages in every_partition(len(seconds), edges, parts):
            key = parts, depth_of(stages, edges)
            least[key] = min(least[key], max(seconds[stage].sum() for stage in stages))
    graph = GraphCuts.of(seconds.tolist(), edges)
    assert graph.is_exact
    cuts = graph.cuts(seconds, 5)
    for (parts, depth), shortest in least.items():
        found = [
            max(seconds[list(stage)].sum() for stage in stages)
            for stages in cuts[parts]
            if depth_of(stages, edges) <= depth
        ]
        assert min(found) <= shortest
    for parts, some in cuts.items():
        for stages in some:
            assert sorted(layer for stage in stages for layer in stage) == list(range(len(seconds)))
            assert len(stages) == parts
            best = min(s for (p, d), s in least.items() if p == parts and d <= depth_of(stages, edges))
            assert max(seconds[list(stage)].sum() for stage in stages) == best


def test_a_chain_is_cut_as_a_chain():
    seconds = np.array([3.0, 1.0, 2.0, 2.0, 4.0])
    cuts = GraphCuts.of(seconds.tolist(), [*pairwise(range(5))]).cuts(seconds, 3)
    assert cuts == {2: (((0, 1, 2), (3, 4)),), 3: (((0, 1), (2, 3), (4,)),)}


def test_wide_and_long_graphs_are_coarsened_and_stay_graphs():
    """Forty tables, whose sets nobody can list, and two towers of forty layers: each group stays together."""
    random = Random(3)
    tables = [(u, 40) for u in range(40)]
    towers = [*pairwise(range(40)), *pairwise(range(40, 80)), (39, 80), (79, 80)]
    for count, edges in ((41, tables), (81, towers)):
        seconds = np.array([random.uniform(1, 3) for _ in range(count)])
        graph = GraphCuts.of(seconds.tolist(), edges)
        assert not graph.is_exact
        for parts, some in graph.cuts(seconds, 4).items():
            for stages in some:
                depth_of(stages, edges)
                assert sorted(layer for stage in stages for layer in stage) == list(range(count))
                assert max(seconds[list(stage)].sum() for stage in stages) <= 1.3 * seconds.sum() / parts
