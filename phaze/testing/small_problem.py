"""A problem so small that everything of it can be evaluated: a decoder of four blocks, 24 architectures, 300 W."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from phaze.arrays import Floats
from phaze.explore.certified.certified_search import CertifiedSearch
from phaze.explore.certified.search_points import WorkloadPoints
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluation_oracle import Evaluation, Oracle
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.explore_request import Budgets, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import parse_space
from phaze.workload.workload_loader import LoadOptions, workload_of
from phaze.yaml_file import parse_yaml

DECODER = """
schema_version: 1
name: tiny
family: decoder
source: {all: made up for tests}
dimensions:
  layers: 4
  hidden: 512
  heads: 8
  ffn_hidden: 2048
  vocabulary: 8000
  max_positions: 256
  activation: gelu_tanh
  norm: layer
  norm_place: pre
  bias: true
  positions: learned
  tied_embeddings: true
sequence_length: 256
global_batch: 12
precision: bf16
optimizer: adam
"""
SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [1, 3, 6]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - {fields: [vector_cores], values: [1, 2]}
  - {fields: [vector_core_alus], values: [64, 1024]}
"""
BUDGETS = Budgets(power_w=300.0)
ENDLESS_S = 1e9


@dataclass
class KnownOracle(Oracle):
    """An oracle that is given what another one has worked out."""

    worked_out: Mapping[int, Evaluation] = field(default_factory=dict)

    def _evaluated(self, block: Block) -> list[Evaluation]:
        return [replace(self.worked_out[int(n)], seconds=0.0) for n in block.numbers]


@dataclass(frozen=True)
class SolvedProblem:
    """Candidates with all their evaluations, and the certified optimum in samples/s."""

    candidates: Candidates
    task: Task
    known: Mapping[int, Evaluation]
    optimum: float

    def oracle(self, limit_s: float = ENDLESS_S) -> KnownOracle:
        """A fresh oracle, whose clock is over after so many seconds."""
        clock = Clock(limit_s)
        return KnownOracle(self.candidates, [self.task], first_throughput, clock, worked_out=self.known)


def first_throughput(throughputs: Floats, _tdp_w: Floats, _area_mm2: Floats) -> Floats:
    """The throughput of the only workload as a merit."""
    first: Floats = throughputs[0]
    return first


@cache
def small_task() -> Task:
    """The decoder on four devices, in few settings."""
    workload = workload_of(parse_yaml(DECODER, "tiny.yaml"), "tiny.yaml", LoadOptions())
    return Task(workload, 4, load_network(), held={"microbatches": (1,), "tensor": (2,)})


@cache
def solved_problem() -> SolvedProblem:
    """The problem, solved by the certified search and, for every candidate, by the evaluator."""
    candidates, task = Candidates(parse_space(SPACE, "few.yaml"), BUDGETS), small_task()
    oracle = Oracle(candidates, [task], first_throughput, Clock(ENDLESS_S))
    known = {found.number: found for found in oracle.evaluate(candidates.all().numbers)}
    clock = Clock(ENDLESS_S)
    points = WorkloadPoints.of(candidates, task, clock, SearchAxes((metric("throughput"), metric("tdp"))))
    found = CertifiedSearch(points, clock, SilentProgress()).run()
    return SolvedProblem(candidates, task, known, found.most)
