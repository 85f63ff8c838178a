"""What stages of a plan hand to one another where branches of the model run side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats
from phaze.parallel.chunk_division import Division
from phaze.parallel.pipelines.stage_graph import StageGraph
from phaze.workload.work import LayerEdge


@dataclass(frozen=True)
class StageEdges:
    """Stages as a graph, and the bytes of a microbatch that pass every edge of it, (E,), whole as of a tensor group."""

    graph: StageGraph
    sent_bytes: Floats

    @classmethod
    def of(cls, edges: Sequence[LayerEdge], division: Division) -> StageEdges:
        """The stages of a division. What several layers of a stage read of another layer is sent there once."""
        last = np.array([division.layers(chunk).stop for chunk in range(len(division.chunks))])
        sent: dict[tuple[int, int], dict[int, float]] = {}
        for edge in edges:
            source, target = np.searchsorted(last, [edge.source, edge.target], side="right").tolist()
            if source != target:
                made = sent.setdefault((source, target), {})
                made[edge.source] = max(made.get(edge.source, 0.0), edge.boundary_bytes)
        ways = sorted(sent)
        graph = StageGraph(len(division.chunks), tuple(ways))
        return cls(graph, np.array([sum(sent[way].values()) for way in ways], dtype=np.float64))

    def waiting_bytes(self, microbatches: int) -> Floats:
        """Bytes on every stage, (C,), of tensors that wait for a longer path to catch up, and of their gradients.

        Each waits at the stage that reads it: a tensor at the end of an edge, its gradient at the start.
        """
        found = np.zeros(self.graph.count)
        waiting = self.graph.waiting(microbatches) * self.sent_bytes
        for (source, target), size in zip(self.graph.edges, waiting.tolist(), strict=True):
            found[source] += size
            found[target] += size
        return found
