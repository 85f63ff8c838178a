"""Evaluated architectures as they are reported: whole designs, points of the frontier, rows of the design table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.explore.certified.search_pieces import SearchContext
from phaze.explore.documents.result_document import Cross, Design, FrontierPoint, ScorePoint
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluation_oracle import Evaluation
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.flops_utilisation import flops_utilisation
from phaze.explore.evaluation.planned_iteration import PlannedIteration, energies_j, worked_out
from phaze.explore.evaluation.sample_costs import SampleCosts
from phaze.explore.evaluation.training_config import TrainingConfig, config_columns
from phaze.explore.request.design_metrics import PRICED, metric
from phaze.explore.request.partner_process import PartnerProcess
from phaze.explore.request.search_progress import Clock
from phaze.hardware.architecture import Architecture, from_rows, from_table
from phaze.hardware.architecture_naming import architecture_id, architecture_ids, decoded
from phaze.hardware.economics.package_price import price_usd
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import POINT_STATES

TOLD_TOGETHER = 2  # points of the frontier whose plans are worked out between two looks at the clock


class ToldAside:
    """Rows that another process tells: `frontier` those of them that are points of a frontier, `designs` whole ones."""

    def __init__(self, partner: PartnerProcess, frontier: Sequence[int], designs: Sequence[int]) -> None:
        """The partner is asked for them, and for nothing else before they are there."""
        self.frontier, self.designs = frozenset(frontier), frozenset(designs)
        self._partner = partner

    @classmethod
    def of(cls, partner: PartnerProcess, piece: ToldPiece) -> ToldAside:
        """Ask for some rows."""
        partner.ask(piece)
        return cls(partner, piece.frontier, piece.designs)

    @cached_property
    def told(self) -> tuple[dict[int, FrontierPoint], dict[int, Design]]:
        """Points of the frontier, and designs, by row: all, or those for which there was time."""
        found: tuple[dict[int, FrontierPoint], dict[int, Design]] = self._partner.answer()
        return found


@dataclass(frozen=True)
class ToldPiece:
    """Evaluated points of one workload, by row, to be told in the process that knows them.

    `clock`: how long schedules are searched for. `hurried`: once it shows that time is over, no more than the first
    points of `frontier` and the first of `designs` are told.
    """

    rows: Mapping[int, Evaluation]
    frontier: Sequence[int]
    designs: Sequence[int]
    clock: Clock
    hurried: bool = False

    def on(self, context: SearchContext) -> tuple[dict[int, FrontierPoint], dict[int, Design]]:
        """Points of the frontier, and designs, by row, as far as there is time."""
        # Who waits has interrupted everything before, and may tell this process so once more.
        clock = Clock(self.clock.left()) if self.hurried else self.clock
        effort, evaluated = SolveLimits(clock.left, POINT_STATES), list(self.rows.values())
        found = EvaluatedDesigns(context.candidates, [context.evaluator], evaluated, effort)
        places = {row: place for place, row in enumerate(self.rows)}
        together = TOLD_TOGETHER if self.hurried else max(1, len(self.frontier))
        designs, points = dict[int, Design](), dict[int, FrontierPoint]()
        if not self.hurried:
            found.place(list(places.values()))
        for row in self.designs[:1]:
            designs[row] = found.design(places[row])
        for begin in range(0, len(self.frontier), together):
            if self.hurried and points and clock.over:
                break
            some = self.frontier[begin : begin + together]
            found.place([places[row] for row in some])
            points |= zip(some, found.frontier([places[row] for row in some]), strict=True)
        for row in self.designs[1:]:
            if self.hurried and clock.over:
                break
            designs[row] = found.design(places[row])
        return points, designs


class EvaluatedDesigns:
    """Evaluated points of one workload or of several, by row; `block`: their hardware."""

    def __init__(
        self,
        candidates: Candidates,
        evaluators: Sequence[Evaluator],
        rows: Sequence[Evaluation],
        effort: SolveLimits,
        aside: ToldAside | None = None,
    ) -> None:
        """`evaluators`, one per workload, share what they know; `effort` limits schedules that are not known yet.

        `aside`: rows that are told elsewhere.
        """
        self.rows = rows
        self._aside = aside
        self._elsewhere = frozenset() if aside is None else aside.frontier | aside.designs
        self.block = candidates.within(np.array([row.number for row in rows], dtype=np.int64))
        self._candidates = candidates
        margin = candidates.budgets.tdp_margin
        self._parts = [
            _OfWorkload(
                evaluator.on(self.block.table),
                [row.configs[w] for row in rows],
                np.array([row.throughputs[w] for row in rows]),
                DesignBuilder(evaluator.task, margin),
                effort,
            )
            for w, evaluator in enumerate(evaluators)
        ]

    def is_elsewhere(self, row: int) -> bool:
        """Whether another process tells a row."""
        return row in self._elsewhere

    @property
    def told_elsewhere(self) -> frozenset[int]:
        """Points of the frontier that another process tells: those for which it had time."""
        return frozenset() if self._aside is None else frozenset(self._aside.told[0])

    def tells(self, row: int) -> bool:
        """Whether `design` may be asked for a row: not where another process had no time for it."""
        return self._aside is None or row not in self._aside.designs or row in self._aside.told[1]

    def place(self, rows: Sequence[int]) -> None:
        """Find the plans of some rows, all of one config together."""
        for part in self._parts:
            part.place([row for row in dict.fromkeys(rows) if row not in self._elsewhere])

    def design(self, row: int) -> Design:
        """The full report of one row. Raises InfeasibleError where no plan of it was found."""
        if self._aside is not None and row in self._aside.designs:
            return self._aside.told[1][row]
        designs = [part.design(self.architecture(row), row) for part in self._parts]
        results = {name: result for one in designs for name, result in one.workloads.items()}
        return designs[0].model_copy(update={"workloads": results})

    def frontier(self, rows: Sequence[int]) -> list[FrontierPoint]:
        """Some rows as points of a frontier, in their order, their plans being found."""
        (part,) = self._parts
        varied, margin = self._candidates.varied, self._candidates.budgets.tdp_margin
        aside = self._aside
        here = [row for row in rows if aside is None or row not in aside.frontier]
        points: dict[int, FrontierPoint] = {}
        for config, members in part.by_config(here).items():
            plans = {row: part.planned(row) for row in members}
            points.update(
                zip(plans, frontier_points(part.evaluator, config, plans, varied, margin), strict=True)
            )
        if aside is not None and len(here) < len(rows):
            points |= aside.told[0]
        return [points[row] for row in rows]

    def steps(self, rows: Sequence[int]) -> list[ScorePoint]:
        """Some rows as steps of the frontier of a score."""
        return [
            ScorePoint(**self._told(row), architecture=dict(self.architecture(row).fields)) for row in rows
        ]

    def cross(self, row: int, winner_for: Sequence[str]) -> Cross:
        """One row on all workloads."""
        return Cross(**self._told(row), winner_for=list(winner_for))

    def columns(self, told: Sequence[FrontierPoint] = ()) -> dict[str, NDArray[Any]]:
        """The design table: every row as columns of equal length; `told`: the rows as points of a frontier."""
        columns: dict[str, NDArray[Any]] = {
            "id": np.array(architecture_ids(self.block.table, self._candidates.varied)),
            "number": self.block.numbers,
        }
        if len(self._parts) > 1:
            columns["score"] = np.array([row.value for row in self.rows])
            for part in self._parts:
                columns[f"throughput_samples_per_s[{part.name}]"] = part.throughput
        else:
            columns |= {"throughput_samples_per_s": self._parts[0].throughput, "mfu": self._parts[0].mfu}
        columns |= {"tdp_w": self.block.tdp_w, "area_mm2": self.block.area_mm2}
        if told:
            columns["energy_per_sample_j"] = np.array([point.energy_per_sample_j for point in told])
            columns["memory_bytes"] = np.array([point.memory_bytes for point in told])
            economics = self._parts[0].evaluator.task.economics
            columns["price_usd"] = price_usd(self.block.table, self.block.area_mm2, economics)
            columns |= _told_costs(told)
        if len(self._parts) == 1:
            columns |= self._parts[0].config_columns
        for name in self._candidates.differing:
            columns[name] = np.array(decoded(self.block.table, name))
        return columns

    def _told(self, row: int) -> dict[str, Any]:
        names, found = [part.name for part in self._parts], self.rows[row]
        return {
            "id": self.architecture(row).name,
            "score": found.value,
            "throughputs_samples_per_s": dict(zip(names, found.throughputs, strict=True)),
            "tdp_w": found.tdp_w,
            "area_mm2": found.area_mm2,
        }

    def architecture(self, row: int) -> Architecture:
        """The hardware of one row."""
        table = self.block.table
        return from_table(table, row, architecture_id(table, row, self._candidates.varied))


class _OfWorkload:
    """One workload on all rows, each in its config."""

    def __init__(
        self,
        evaluator: Evaluator,
        configs: Sequence[TrainingConfig | None],
        throughput: NDArray[np.float64],
        builder: DesignBuilder,
        effort: SolveLimits,
    ) -> None:
        self.evaluator = evaluator
        self.throughput = throughput
        self._configs = configs
        self._builder = builder
        self._effort = effort
        self._plans: dict[int, FoundPlan] = {}
        self._told: dict[int, PlannedIteration] = {}

    @property
    def name(self) -> str:
        """The workload."""
        return self.evaluator.task.workload.name

    def by_config(self, rows: Sequence[int]) -> dict[TrainingConfig, list[int]]:
        """Some rows by config; those without one are left out."""
        found: dict[TrainingConfig, list[int]] = {}
        for row in rows:
            config = self._configs[row]
            if config is not None:
                found.setdefault(config, []).append(row)
        return found

    def place(self, rows: Sequence[int]) -> None:
        """Find the plans of some rows, and work them out."""
        batch = self.evaluator.task.cluster.global_batch
        for config, members in self.by_config([row for row in rows if row not in self._told]).items():
            known_s = batch / self.throughput[members]
            plans = self.evaluator.plans(config, np.array(members), known_s, self._effort)
            found = {row: plan for row, plan in zip(members, plans, strict=True) if plan is not None}
            self._told |= zip(found, worked_out(self.evaluator, config, found), strict=True)

    def planned(self, row: int) -> PlannedIteration:
        """The plan of one row."""
        if row not in self._told:
            self.place([row])
        return self._told[row]

    def design(self, architecture: Architecture, row: int) -> Design:
        """The report of one row for this workload."""
        config = self._configs[row]
        assert config is not None, "a row that is reported has a plan"
        self.place([row])
        return self._builder.told(architecture, self.evaluator, row, config, self._told.get(row))

    @cached_property
    def mfu(self) -> NDArray[np.float64]:
        """Model FLOPs utilisation of every row."""
        task, peaks = self.evaluator.task, np.ones(len(self._configs))
        for config, members in self.by_config(range(len(self._configs))).items():
            peaks[members] = self.evaluator.peak_flops_per_s(config)[members]
        seconds = task.cluster.global_batch / self.throughput
        return flops_utilisation(self.evaluator.model_flops, seconds, task.devices, peaks)

    @property
    def config_columns(self) -> dict[str, NDArray[Any]]:
        """Configs as columns."""
        return config_columns(self.evaluator.task, [config for config in self._configs if config is not None])


def _told_costs(points: Sequence[FrontierPoint]) -> dict[str, NDArray[Any]]:
    """Columns of money and carbon of points, those that they have."""
    names = [metric(name).column for name in sorted(PRICED)]
    told = {name: [getattr(point, name) for point in points] for name in names}
    return {name: np.array(values) for name, values in told.items() if None not in values}


def frontier_points(
    evaluator: Evaluator,
    config: TrainingConfig,
    plans: Mapping[int, PlannedIteration],
    varied: Iterable[str],
    margin: float,
) -> list[FrontierPoint]:
    """Frontier points of architectures at some rows of the evaluator's table, each under a plan in one config.

    `varied`: the fields that their names show. TDP is that at full load times `margin`. Plans pass the checker.
    """
    for planned in plans.values():
        planned.check(kinds=False)
    task, rows = evaluator.task, np.array(list(plans), dtype=np.intp)
    batch = task.cluster.global_batch
    table = evaluator.table.take(rows)
    power, area = tdp_w(table, margin), area_mm2(table)
    costs = SampleCosts.of(task, table, area, power)
    figures = zip(
        plans.values(),
        energies_j(list(plans.values())),
        from_rows(table, architecture_ids(table, varied)),
        power.tolist(),
        area.tolist(),
        evaluator.peak_flops_per_s(config)[rows].tolist(),
        strict=True,
    )
    return [
        FrontierPoint(
            id=architecture.name,
            throughput_samples_per_s=batch / planned.iteration.iteration_s,
            tdp_w=tdp,
            area_mm2=mm2,
            energy_per_sample_j=joules / batch,
            memory_bytes=planned.iteration.memory_bytes,
            mfu=flops_utilisation(evaluator.model_flops, planned.iteration.iteration_s, task.devices, peak),
            **costs.of_plan(row, planned.iteration.iteration_s / batch, joules / batch),
            architecture=dict(architecture.fields),
        )
        for row, (planned, joules, architecture, tdp, mm2, peak) in enumerate(figures)
    ]
