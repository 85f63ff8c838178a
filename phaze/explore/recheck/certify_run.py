"""The re-check of one run, by what it was asked; most runs are over throughput and TDP, for one workload or for
several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InfeasibleError
from phaze.explore.answers.least_memory_exploration import within_winner
from phaze.explore.answers.main_job import evaluate
from phaze.explore.answers.network_exploration import within_network
from phaze.explore.documents.certify_document import CertifyReport, Check, Sample
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.documents.serving_document import ServingDocument
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.recheck.architecture_sample import Population, pick_sample
from phaze.explore.recheck.axes_recheck import AxesRecheck
from phaze.explore.recheck.common_recheck import Recheck, Sampled
from phaze.explore.recheck.document_recheck import placed, question_unchanged
from phaze.explore.recheck.elementary_checks import (
    Leaves,
    bound_agrees,
    counts_agree,
    path_text,
    same_figure,
    throughput_reached,
)
from phaze.explore.recheck.rechecked_points import BLIND, MaximisedValue, drawn_configs
from phaze.explore.request.explore_request import ExploreRequest, Task
from phaze.explore.request.search_progress import Progress, SilentProgress
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES, SAME


class ThroughputPowerRecheck(Recheck):
    """The re-check of a run over throughput and TDP."""

    def checks(self) -> Iterator[Check]:
        """Its claims, its winner, its counts, and its points."""
        yield from self._claims()
        yield from self._winner()
        yield counts_agree(self.parts(), self.document.certificate)
        yield from self._table()

    # -- what the figures mean ------------------------------------------------------------------------------

    @cached_property
    def _worth(self) -> MaximisedValue:
        return MaximisedValue.of(self.request, self.document)

    @cached_property
    def _steps(self) -> list[tuple[float, float, dict[str, Any]]]:
        """The frontier as (TDP in W, throughput or score, hardware fields)."""
        if self.document.portfolio is not None:
            return [(p.tdp_w, p.score, p.architecture) for p in self.document.portfolio.frontier]
        return [(p.tdp_w, p.throughput_samples_per_s, p.architecture) for p in self.document.frontier]

    # -- checks ---------------------------------------------------------------------------------------------

    def _claims(self) -> Iterator[Check]:
        """The certificate in itself."""
        c, best = self.document.certificate, self.document.best
        score = self._worth.score([r.throughput_samples_per_s for r in best.workloads.values()])
        value = self._worth.value(score, best.tdp_w)
        yield same_figure("objective value is the winner's", c.objective_value, value)
        yield bound_agrees(c)
        steps = [(tdp, score) for tdp, score, _ in self._steps]
        rising = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(steps))
        yield Check(name="frontier rises", passed=rising, note=f"{len(steps)} steps")

    def _winner(self) -> Iterator[Check]:
        """The winner's plans built anew and checked, its size and power from its hardware fields."""
        best = self.document.best
        chip = Architecture(name=best.id, fields=best.architecture)
        table, margin = to_table([chip]), self.request.budgets.tdp_margin
        yield same_figure("TDP of the winner", best.tdp_w, float(tdp_w(table, margin)[0]))
        yield same_figure("area of the winner", best.area_mm2, float(area_mm2(table)[0]))
        for count, task in enumerate(self.part.tasks):
            name = task.workload.name
            self.progress.update("checking the winner", count, len(self.part.tasks), name)
            claimed = best.workloads[name].throughput_samples_per_s
            try:
                again = evaluate(task, chip, tdp_margin=margin).workloads[name].throughput_samples_per_s
            except InfeasibleError:
                again = 0.0
            if (
                again < claimed
            ):  # layers that take long to schedule are in better schedules where the search tried
                again = max(again, self._placed(task, chip))
            optimal = self.document.certificate.optimal
            yield throughput_reached(f"throughput of the winner on {name}", claimed, again, exactly=optimal)

    def _placed(self, task: Task, chip: Architecture) -> float:
        """Throughput of the winner in its config, with the effort of a search; 0 where there is none."""
        claimed = self.document.best.workloads[task.workload.name].placement
        try:
            again = placed(task, chip, claimed, self.request.budgets.tdp_margin)
        except (InfeasibleError, ValueError):
            return 0.0
        return again.workloads[task.workload.name].throughput_samples_per_s

    def _table(self) -> Iterator[Check]:
        """The design table against the certificate and the frontier."""
        rows = [(float(r["tdp_w"]), self._worth.score(self._worth.throughputs(r))) for r in self.designs]
        yield self._none_better(
            "no evaluated design is better", rows, self.document.certificate.objective_value
        )
        yield self._none_missing("no evaluated design is missing from the frontier", rows)

    def sampled(self) -> Sampled:
        """Architectures that were not evaluated, evaluated."""
        part = self.part
        candidates = Candidates(part.space, part.budgets)
        known = {candidates.number(a) for a in self._evaluated(candidates)}
        population = Population(candidates, part.tasks)
        strata = population.strata(self.document.best.architecture, [a for _, _, a in self._steps], self.seed)
        chosen = pick_sample(strata, self.samples, known)
        numbers = np.array(list(chosen), dtype=np.int64)
        block = candidates.within(numbers)
        rows, found = [], []
        if len(numbers):
            reached = np.stack([self._reached(task, block.table, w) for w, task in enumerate(part.tasks)])
            rows = [(float(t), self._worth.score(reached[:, i])) for i, t in enumerate(block.tdp_w)]
        for number, (tdp, score) in zip(block.numbers.tolist(), rows, strict=True):
            value = self._worth.value(score, tdp) if score > 0 else 0.0
            name = candidates.architecture(number).name
            found.append(Sample(id=name, stratum=chosen[number], value=value, tdp_w=tdp))
        bound = self.document.certificate.upper_bound
        checks = [
            self._none_better("no sampled design beats the bound", rows, bound),
            self._none_missing("no sampled design is missing from the frontier", rows),
        ]
        return Sampled(found, checks)

    def _evaluated(self, candidates: Candidates) -> Iterator[dict[str, Any]]:
        """Hardware fields of the rows of the design table."""
        for row in self.designs:
            yield candidates.space.completed({name: row[name] for name in candidates.varied})

    def _reached(self, task: Task, table: ArchitectureTable, which: int) -> Floats:
        """Throughput (A,) reached by the best point of each architecture, or by one taken blindly."""
        evaluator, rows = Evaluator(task, table), np.arange(len(table))
        effort = SolveLimits(lambda: np.inf, FEW_STATES)

        def told(decided: int) -> None:
            before, all_ = which * len(table), len(self.part.tasks) * len(table)
            self.progress.update("checking samples", before + decided, all_, f"{len(table)} architectures")

        best = best_points(evaluator, rows, effort, told=told).upper_s
        random = np.random.default_rng([self.seed, which])
        drawn = drawn_configs(len(evaluator.configs), random)
        for _ in range(BLIND):
            blind = random.choice(drawn, size=len(table))
            for k in np.unique(blind):
                at = rows[blind == k]
                nothing = np.full(len(at), np.inf)
                found = evaluator.exact(evaluator.configs[int(k)], at, nothing, effort)
                best[at] = np.minimum(best[at], found.upper_s)
        return np.asarray(task.cluster.global_batch / best)

    def _none_better(self, name: str, rows: Sequence[tuple[float, float]], limit: float) -> Check:
        values = [self._worth.value(score, tdp) for tdp, score in rows if score > 0]
        best = max(values, default=0.0)
        return Check(
            name=name,
            passed=best <= limit * (1 + SAME),
            note=f"best of {len(rows)}: {best:.9g}, at most {limit:.9g}",
        )

    def _none_missing(self, name: str, rows: Sequence[tuple[float, float]]) -> Check:
        if not self.document.certificate.frontier_complete:
            return Check(name=name, passed=True, note="the frontier is not said to be complete")
        tdp = np.array([t for t, _, _ in self._steps])
        score = np.array([s for _, s, _ in self._steps])
        kept = [(t, s) for t, s in rows if s > 0 and self._worth.value(s, t) > 0]
        missing = sum(not ((tdp <= t) & (score >= s * (1 - SAME))).any() for t, s in kept)
        return Check(name=name, passed=not missing, note=f"{missing} of {len(rows)}")


def question_changed(
    name: str, document: ResultDocument | ServingDocument, seed: int
) -> CertifyReport | None:
    """The report on a run whose manifest asks another question than its hash says: nothing else can be judged."""
    check = question_unchanged(document)
    if check.passed:
        return None
    rest = sorted({path_text(path) for path in Leaves.of(document).claimed})
    return CertifyReport(run=name, passed=False, checks=[check], samples=[], seed=seed, unchecked=rest)


def certify(
    name: str,
    request: ExploreRequest,
    document: ResultDocument,
    designs: Sequence[Mapping[str, Any]],
    samples: int,
    seed: int,
    progress: Progress | None = None,
) -> CertifyReport:
    """All checks of the run called `name`, its answer `document` to `request` and its design table.

    `samples`: architectures that are evaluated beyond those of the run, picked by `seed`.
    """
    kind = AxesRecheck if request.over_axes else ThroughputPowerRecheck
    asked = within_winner(within_network(request, document), document)
    over = None if request.space.network_axes is None else request
    return kind(name, asked, document, designs, samples, seed, progress or SilentProgress(), over).report()
