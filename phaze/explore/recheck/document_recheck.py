"""Every part of a result document that can be worked out again without a search, and the list of what cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import BaseModel

from phaze.arrays import Rows
from phaze.errors import InfeasibleError, InputError
from phaze.explore.answers import exploration
from phaze.explore.answers.chip_comparison import comparisons, left_out
from phaze.explore.answers.cluster_exploration import devices_scope
from phaze.explore.answers.evaluated_designs import frontier_points
from phaze.explore.answers.main_job import STAGES, resolve_strategy
from phaze.explore.answers.network_exploration import networks_scope
from phaze.explore.answers.searched_question import question_scope
from phaze.explore.answers.training_run import training_run
from phaze.explore.answers.two_designs import TwoDesignsAnswer
from phaze.explore.documents.certify_document import Check
from phaze.explore.documents.result_document import (
    RESULT_SCHEMA,
    Design,
    FrontierPoint,
    Placement,
    ResultDocument,
)
from phaze.explore.documents.result_manifest import describe_request, question_sha256
from phaze.explore.documents.serving_document import ServingDocument
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.planned_iteration import worked_out
from phaze.explore.evaluation.training_config import TrainingConfig, config_of_placement, config_of_row
from phaze.explore.recheck.elementary_checks import Leaves, Path, path_text, same_value
from phaze.explore.recheck.rechecked_points import FEW, MaximisedValue, by_config, spend_as_searched
from phaze.explore.request.explore_request import ExploreRequest, Task, objective_of
from phaze.explore.request.objective_floor import Goal, floor_throughput
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.hardware.architecture import Architecture, from_table, to_table
from phaze.hardware.architecture_naming import architecture_id, architecture_ids
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import SAME

Row = Mapping[str, Any]
Spend = Callable[[Evaluator, TrainingConfig, Rows], SolveLimits]
_RESULTS = frozenset({"workloads"})
_MEASURED = frozenset({"throughput_samples_per_s", "energy_per_sample_j", "memory_bytes", "mfu"})
_COUNTED = ("optimal", "objective_value", "upper_bound", "gap")
_POINTS = ("space_size", "over_budget", "pruned", "evaluated", "pruned_by")


def question_unchanged(document: ResultDocument | ServingDocument) -> Check:
    """Agreement of the question, and of the files it names, with the hash in the manifest."""
    manifest = document.manifest
    passed = manifest.question_sha256 in {None, question_sha256(manifest)}
    return Check(
        name="the question is the one that was asked",
        passed=passed,
        note="by its hash in the manifest"
        if passed
        else "the manifest was changed: its hash is of another question",
    )


@dataclass(frozen=True)
class DocumentRecheck:
    """A document, the request it answered, and its design table; `request`: at the winner's number of devices."""

    request: ExploreRequest
    document: ResultDocument
    designs: Sequence[Row]
    leaves: Leaves

    def checks(self) -> Iterator[Check]:
        """One check for each part, each of all values in it."""
        yield from self._question()
        yield from self._certificate()
        yield from self._designs()
        if not self.request.others:
            yield from self._of_one_workload()
        yield from self._absent()

    def _absent(self) -> Iterator[Check]:
        """Absence of all parts that were not asked for."""
        request, cluster = self.request, self.document.cluster
        absent = {
            "cluster": cluster is None,
            "networks": self.document.networks is None,
            "portfolio": not request.others,
            "robustness": not request.robust,
            "two_designs": not request.two_designs,
            "strategy": request.strategy is None,
            "wham": request.strategy is None or request.strategy.name != STAGES,
        }
        for name in (name for name, none in absent.items() if none):
            yield self.leaves.compare(f"{name.replace('_', ' ')} absent, as asked", (name,), None)
        lists = ("frontier", "comparison") if request.others else ("next_best",)
        for name in lists if request.others or request.over_axes else ():
            yield self.leaves.compare(f"{name.replace('_', ' ')} absent, as asked", (name,), [])
        if request.others:
            yield self.leaves.compare("no training run", ("training_run",), None)

    def hardware(self) -> Check:
        """Every reported design is one of the space within its budgets; else nothing else can be judged."""
        designs = [(path, design.architecture) for path, design in self._told]
        designs += [(("frontier", i), point.architecture) for i, point in enumerate(self.document.frontier)]
        wrong = [path_text(path) for path, fields in designs if not self._one_of_the_space(fields)]
        return Check(
            name="all designs are in the space and within budget",
            passed=not wrong,
            note=", ".join(wrong[:3]) or f"{len(designs)} designs",
        )

    def _one_of_the_space(self, fields: Mapping[str, Any]) -> bool:
        chip = self._chip(fields)
        return chip is not None and same_value(chip.fields, fields)

    def _chip(self, fields: Mapping[str, Any]) -> Architecture | None:
        """The architecture of the space with some hardware fields; None where there is none within budget."""
        try:
            block = self._candidates.within(np.array([self._candidates.number(fields)]))
        except (InputError, ValueError, LookupError, TypeError):  # fields that no architecture has
            return None
        if not len(block):
            return None
        return from_table(block.table, 0, architecture_id(block.table, 0, self._candidates.varied))

    # -- parts ----------------------------------------------------------------------------------------------

    def _question(self) -> Iterator[Check]:
        manifest, request = self.document.manifest, self.request
        yield question_unchanged(self.document)
        if manifest.question_sha256 is not None:
            names = ("asked", "seed", "inputs_sha256", "question_sha256")
            self.leaves.hold(*[("manifest", name) for name in names])
        yield self.leaves.compare("seed", ("manifest", "seed"), request.seed)
        claimed = self.document.request
        described = describe_request(resolve_strategy(request))
        again = {name: value for name, value in described.items() if name in claimed}
        others = frozenset(claimed) - frozenset(again)
        yield self.leaves.compare("the request as it is told", ("request",), again, others)
        yield self.leaves.compare("schema", ("schema",), RESULT_SCHEMA)

    def _certificate(self) -> Iterator[Check]:
        c, at = self.document.certificate, "certificate"
        self.leaves.hold(*[(at, name) for name in (*_COUNTED, *_POINTS)])  # checks of their own relate them
        open_ = c.pruned_by.get("open", 0)
        yield Check(
            name="what is proven is complete",
            passed=not (open_ and c.frontier_complete),
            note=f"{open_:,} points undecided",
        )
        yield self.leaves.compare("objective", (at, "objective"), objective_of(self.request).name)
        yield self.leaves.compare("scope", (at, "scope"), self._scope())
        several = bool(self.request.others)
        plans = None if several else Evaluator(self.request.task, self._candidates.table(range(1))).plans_each
        yield self.leaves.compare("plans of an architecture", (at, "plans_per_architecture"), plans)
        told = self.document
        if not (open_ and (told.cluster or told.networks)):  # of other numbers of devices or networks, maybe
            complete = not open_ and not self.request.strategy
            yield self.leaves.compare("frontier complete", (at, "frontier_complete"), complete)

    def _scope(self) -> list[str]:
        """Scope of the certificate, worked out again."""
        request, told = self.request, self.document
        own = told.portfolio.workloads.values() if told.portfolio is not None else ()
        again = question_scope(request, MaximisedValue.of(request, told).rule, [share.own for share in own])
        if told.networks is not None:
            return [*again, *networks_scope([choice.network for choice in told.networks.choices])]
        if told.cluster is None:
            return again
        return [*again, devices_scope([choice.devices for choice in told.cluster.choices])]

    def _designs(self) -> Iterator[Check]:
        for path, design in self._told:
            again = self._again(design)
            skipped = frozenset() if self._finished else _RESULTS
            yield self.leaves.compare(f"all of {'.'.join(map(str, path))}", path, again, skipped)

    def _of_one_workload(self) -> Iterator[Check]:
        request, document = self.request, self.document
        if self._plain:
            yield self._runners_up()
        yield self._table()
        yield from self._frontier()
        builder = DesignBuilder(request.task, request.budgets.tdp_margin)
        beside = comparisons(request, document.best, builder)
        late = {one.name: one for one in left_out(request, document.best)}
        said = {one.name: one.note for one in document.comparison}  # what was left out says so
        beside = [late[one.name] if late[one.name].note == said.get(one.name) else one for one in beside]
        yield self.leaves.compare("comparison", ("comparison",), [_json(one) for one in beside])
        if document.two_designs is not None and document.two_designs.gap <= request.gap * (1 + SAME):
            pair = TwoDesignsAnswer(request, document, Clock(np.inf), SilentProgress()).answer()
            yield self.leaves.compare("two designs", ("two_designs",), _json(pair))
        length = request.length
        run = training_run(length, request.task, document.best) if length else None
        yield self.leaves.compare("training run", ("training_run",), _json(run))

    # -- designs --------------------------------------------------------------------------------------------

    @property
    def _told(self) -> list[tuple[Path, Design]]:
        runners_up = [(("next_best", i), one) for i, one in enumerate(self.document.next_best)]
        return [(("best",), self.document.best), *runners_up]

    def _again(self, design: Design) -> dict[str, Any]:
        """A design from its hardware fields and configs alone, in JSON; empty where there is none."""
        chip, names = self._chip(design.architecture), {task.workload.name for task in self.request.tasks}
        if chip is None or set(design.workloads) != names:
            return {}
        try:
            found = [self._placed(task, chip, design) for task in self.request.tasks]
        except (InfeasibleError, InputError, ValueError):
            return {}
        results = {name: result for one in found for name, result in one.workloads.items()}
        again: dict[str, Any] = _json(found[0].model_copy(update={"workloads": results}))
        return again

    def _placed(self, task: Task, chip: Architecture, design: Design) -> Design:
        claimed = design.workloads[task.workload.name].placement
        return placed(task, chip, claimed, self.request.budgets.tdp_margin, self._spend)

    @property
    def _spend(self) -> Spend:
        """Effort for what is told: no more than little where the search was stopped, as its results are passed over."""
        return spend_as_searched if self._finished else lambda *_: FEW

    def _runners_up(self) -> Check:
        """The next best designs are the next kinds of the design table, in its order by the objective."""
        goal = Goal(self.request.objective, floor_throughput(self.request, self.request.task))
        worth = [goal.value(row["throughput_samples_per_s"], row["tdp_w"]) for row in self.designs]
        order = sorted(
            (k for k, value in enumerate(worth) if value > 0),
            key=lambda k: (-worth[k], self.designs[k]["tdp_w"], self.designs[k]["area_mm2"], k),
        )
        rows = self.designs
        kinds = exploration.distinct_kinds(order, lambda k: (worth[k], rows[k]["tdp_w"], rows[k]["area_mm2"]))
        found = [rows[k]["id"] for k in kinds[: 1 + len(self.document.next_best)]]
        ids = [design.id for _, design in self._told]
        enough = len(ids) == min(len(kinds), 1 + exploration.NEXT_BEST)
        return Check(
            name="the best are those of the design table",
            passed=found == ids and enough,
            note=f"{len(ids)} of {len(kinds)} kinds",
        )

    # -- the design table and the frontier ------------------------------------------------------------------

    def _table(self) -> Check:
        """Size, power and name of every row from its hardware, and its MFU from its throughput."""
        rows, block = self.designs, self._block
        wrong = np.ones(len(rows), dtype=bool)
        if block is not None:
            task, evaluator = self.request.task, Evaluator(self.request.task, block.table)
            speed = np.array([row["throughput_samples_per_s"] for row in rows])
            configs = [config_of_row(row) for row in rows]
            known = np.array([config in evaluator.configs for config in configs], dtype=bool)
            peaks = {s: evaluator.peak_flops_per_s(s) for s in {*configs} & {*evaluator.configs}}
            peak = np.array([peaks[s][i] if s in peaks else np.nan for i, s in enumerate(configs)])
            mfu = speed * evaluator.model_flops / task.cluster.global_batch / (task.devices * peak)
            found = {"tdp_w": block.tdp_w, "area_mm2": block.area_mm2, "mfu": mfu}
            names = architecture_ids(block.table, self._candidates.varied)
            wrong = ~known | np.array(
                [row["id"] != name for row, name in zip(rows, names, strict=True)], dtype=bool
            )
            for name, values in found.items():
                wrong |= ~np.isclose([row[name] for row in rows], values, rtol=SAME, atol=0.0)
        note = f"{int(wrong.sum())} of {len(rows)} rows differ"
        return Check(name="size, power and MFU of the design table", passed=not wrong.any(), note=note)

    def _frontier(self) -> Iterator[Check]:
        """Every point of the frontier from its hardware and its config in the design table."""
        rows = self._rows
        again: list[FrontierPoint | None] = [None] * len(rows)
        block = self._block
        if block is not None and None not in rows:
            again = self._points(block, [row for row in rows if row is not None])
        skipped = frozenset() if self._finished else _MEASURED
        for i, point in enumerate(again):
            check = self.leaves.compare("frontier", ("frontier", i), _json(point), skipped)
            if not check.passed:
                yield check
                self.leaves.hold(("frontier",))
                return
        yield Check(name="all of the frontier", passed=True, note=f"{len(again)} points")

    def _points(self, block: Block, rows: Sequence[int]) -> list[FrontierPoint | None]:
        """Some rows of the design table as points of a frontier; None where nothing fits."""
        evaluator = Evaluator(self.request.task, block.table)
        configs = [config_of_row(self.designs[row]) for row in rows]
        found: list[FrontierPoint | None] = [None] * len(rows)
        for config, places in by_config(configs):
            if config not in evaluator.configs:
                continue
            own = np.array([rows[k] for k in places])
            effort = self._spend(evaluator, config, own)
            plans = evaluator.plans(config, own, np.full(len(own), np.inf), effort)
            placed = {
                k: (row, plan)
                for k, row, plan in zip(places.tolist(), own.tolist(), plans, strict=True)
                if plan
            }
            own_plans = dict(placed.values())
            points = frontier_points(
                evaluator,
                config,
                dict(zip(own_plans, worked_out(evaluator, config, own_plans), strict=True)),
                self._candidates.varied,
                self.request.budgets.tdp_margin,
            )
            for k, point in zip(placed, points, strict=True):
                found[k] = point
        return found

    # -- what all of them take ------------------------------------------------------------------------------

    @cached_property
    def _candidates(self) -> Candidates:
        return Candidates(self.request.space, self.request.budgets)

    @cached_property
    def _block(self) -> Block | None:
        """The rows of the design table as candidates, in its order; None where one is none."""
        numbers = np.array([row["number"] for row in self.designs], dtype=np.int64)
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < self._candidates.size):
            return None
        block = self._candidates.within(numbers)
        return block if len(block) == len(numbers) else None

    @property
    def _rows(self) -> list[int | None]:
        """The row of every point of the frontier in the design table; over other axes that is the frontier itself."""
        points = self.document.frontier
        if self.request.over_axes:
            return [i if i < len(self.designs) else None for i in range(len(points))]
        at = {row["id"]: i for i, row in enumerate(self.designs)}
        return [at.get(point.id) for point in points]

    @property
    def _finished(self) -> bool:
        """Whether the search was not stopped early: then what it tells is the best of each architecture."""
        return not self.document.certificate.pruned_by.get("open", 0)

    @property
    def _plain(self) -> bool:
        """Whether the certified search of one workload made it, on a fixed number of devices."""
        request = self.request
        other = self.document.cluster or self.document.networks
        return not (request.others or request.over_axes or request.strategy or other)


def placed(
    task: Task, chip: Architecture, claimed: Placement, margin: float, spend: Spend = spend_as_searched
) -> Design:
    """A chip under the best plan of the config that is claimed; `spend`: on the schedules of its layers.

    Raises ValueError where there is no such config, InfeasibleError where nothing fits.
    """
    builder = DesignBuilder(task, margin)
    evaluator = Evaluator(task, to_table([chip]))
    config = config_of_placement(task, claimed)
    if config not in evaluator.configs:
        raise ValueError("no such setting")
    return builder.placed(chip, evaluator, 0, config, np.inf, spend(evaluator, config, np.arange(1)))


def _json(record: BaseModel | None) -> Any:  # noqa: ANN401 - any JSON
    return None if record is None else record.model_dump(mode="json", by_alias=True)
