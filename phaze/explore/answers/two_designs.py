"""Two designs for the stages of one pipeline, beside the best design for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.documents.two_designs_report import PairDesign, TwoDesigns
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import ExploreRequest
from phaze.explore.request.search_progress import Clock, Progress
from phaze.explore.strategies.pairs.pair_search import PairFound, PairSearch, PairTally, deep_task
from phaze.explore.strategies.wham.mixed_designs import MixedPlan
from phaze.explore.strategies.wham.wham_reporting import tell_mixed
from phaze.hardware.architecture import from_table
from phaze.hardware.spaces.design_space import architecture_id
from phaze.tolerances import SAME

SCOPE = [
    "two designs: pipelines of two or more stages, one tensor width, each stage of one of two designs",
    "two designs: of designs that another one dominates (no kind of layers and no step slower, memory and link no "
    "less; backward passes as a whole) the other one",
    "two designs: cuts of the plan space, and the one that a program makes for the pair",
]


@dataclass(frozen=True)
class TwoDesignsAnswer:
    """The question after that for one design for all, whose answer is `document`."""

    request: ExploreRequest
    document: ResultDocument
    clock: Clock
    progress: Progress

    def answer(self) -> TwoDesigns:
        """The best with at most two designs, and a bound."""
        candidates = Candidates(self.request.space, self.request.budgets)
        block, task = candidates.all(), deep_task(self.request.task)
        found, tally = PairFound(None, self._known_s, self._known_s), PairTally()
        if task.held["pipeline"]:
            evaluator = Evaluator(task, candidates.survey()).on(block.table)
            search = PairSearch(evaluator, block, self._known_s, self.clock, self.progress, self.request.gap)
            found, tally = search.best(), search.tally
        return self._told(found, tally, candidates, block)

    @property
    def _batch(self) -> int:
        return self.request.task.cluster.global_batch

    @property
    def _known_s(self) -> float:
        """Seconds of an iteration of the best design for all."""
        result = self.document.best.workloads[self.request.task.workload.name]
        return result.iteration_time_s

    def _told(self, found: PairFound, tally: PairTally, candidates: Candidates, block: Block) -> TwoDesigns:
        reached, common = self._batch / found.seconds, self._batch / self._known_s
        bound = max(self._batch / found.bound_s, self.document.certificate.upper_bound, reached)
        gap = 0.0 if bound <= reached * (1 + SAME) else bound / reached - 1
        mixed = found.plan
        return TwoDesigns(
            throughput_samples_per_s=reached,
            gain=reached / common - 1 if mixed else 0.0,
            upper_bound=bound if gap else reached,
            gap=gap,
            optimal=not gap,
            designs=[] if mixed is None else self._designs(mixed, candidates, block),
            pipeline=None if mixed is None else tell_mixed(mixed, common, candidates, self._batch),
            settings=tally.configs,
            settings_opened=tally.opened,
            designs_told_apart=tally.designs,
            designs_worked_out=tally.worked_out,
            pairs_searched=tally.searched,
            scope=SCOPE,
        )

    @staticmethod
    def _designs(mixed: MixedPlan, candidates: Candidates, block: Block) -> list[PairDesign]:
        each = mixed.planned.record
        stage_devices = each.data_parallel * each.tensor_parallel * each.context_parallel
        told = []
        for number in dict.fromkeys(mixed.numbers):
            at = int(np.flatnonzero(block.numbers == number)[0])
            name, stages = architecture_id(block.table, at, candidates.varied), mixed.numbers.count(number)
            told.append(
                PairDesign(
                    id=name,
                    stages=stages,
                    devices=stages * stage_devices,
                    tdp_w=float(block.tdp_w[at]),
                    area_mm2=float(block.area_mm2[at]),
                    architecture=dict(from_table(block.table, at, name).fields),
                )
            )
        return told
