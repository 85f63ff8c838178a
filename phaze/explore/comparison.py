"""Known chips and a published plan beside the winner, under the same budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze.errors import InfeasibleError
from phaze.explore.designs import DesignBuilder
from phaze.explore.document import Comparison, Design
from phaze.explore.request import ExploreRequest
from phaze.hardware.architecture import Architecture, load_architecture, to_table
from phaze.hardware.area import area_mm2
from phaze.hardware.dvfs import clock_limit_hz, fit_clock
from phaze.hardware.power import tdp_w
from phaze.placement.cluster import FixedDegrees
from phaze.placement.strategy.choices import load_plans
from phaze.recall import Recall
from phaze.scheduling.passes import Effort

CHIPS = ("tpuv4", "a100-80gb", "h100", "phaze-reference")


def comparisons(
    request: ExploreRequest, best: Design, builder: DesignBuilder, effort: Effort
) -> list[Comparison]:
    """Known chips and the expert plan beside the winner."""
    return [*chips_beside(request, builder, effort), *plan_beside(request, best, effort, builder.recall)]


def chips_beside(
    request: ExploreRequest, builder: DesignBuilder, effort: Effort, chips: Sequence[str] = CHIPS
) -> list[Comparison]:
    """Templates at the highest clock that keeps the power budget; they do not depend on the winner."""
    return _Beside(request, effort, builder.recall).chips(chips, builder)


def plan_beside(
    request: ExploreRequest, best: Design, effort: Effort, recall: Recall | None = None
) -> list[Comparison]:
    """The expert plan on the winner, where there is one."""
    expert = _Beside(request, effort, recall).expert(best)
    return [expert] if expert else []


@dataclass(frozen=True)
class _Beside:
    """Evaluates one thing at a time beside the winner of a request."""

    request: ExploreRequest
    effort: Effort
    recall: Recall | None

    def chips(self, names: Sequence[str], builder: DesignBuilder) -> list[Comparison]:
        """Templates under the budgets."""
        within = [self._within(name) for name in names]
        found = iter(builder.each([chip for chip, _, fits in within if fits], self.effort))
        return [
            self._described(c, next(found), n) if fits else self._row(c, None, n) for c, n, fits in within
        ]

    def _within(self, name: str) -> tuple[Architecture, str, bool]:
        """A template at the clock the budgets allow it, a remark on that, and whether it keeps them at all."""
        published = load_architecture(name)
        budgets = self.request.budgets
        table = to_table([published])
        clock = float(table["clock_hz"][0])
        note = "at its own clock"
        if budgets.power_w is not None:
            clock = float(fit_clock(table, budgets.power_w, budgets.tdp_margin)[0])
            held_back = clock < float(clock_limit_hz(table)[0])
            reason = f"the highest clock within {budgets.power_w:g} W" if held_back else "its highest clock"
            note = f"at {clock / 1e9:.2f} GHz, {reason}"
        if not np.isfinite(clock):
            return published, f"does not fit {budgets.power_w:g} W at any sensible clock", False
        chip = published.replace(published.name, clock_hz=clock, peak_clock_hz=clock)
        area = float(area_mm2(to_table([chip]))[0])
        if budgets.area_mm2 is not None and area > budgets.area_mm2:
            return chip, f"{area:.0f} mm2 exceeds the area budget", False
        return chip, note, True

    def expert(self, best: Design) -> Comparison | None:
        """The published hand-made plan on the winner; the data degree follows from the number of devices."""
        task = self.request.task
        if task.workload.expert_plan is None:
            return None
        pipeline, tensor, _ = task.workload.expert_plan
        data = task.devices // (pipeline * tensor)
        if data < 1 or tensor not in task.widths:
            return None
        fixed = FixedDegrees(pipeline_parallel=pipeline, tensor_parallel=tensor, data_parallel=data)
        chip = Architecture(name="expert plan on the winner", fields=best.architecture)
        builder = DesignBuilder(
            replace(task, fixed=fixed, plans=load_plans("any")),
            self.request.budgets.tdp_margin,
            recall=self.recall,
        )
        note = f"PHAZE's expert plan: pipeline {pipeline}, tensor {tensor}, data {data}"
        (design,) = builder.each([chip], self.effort)
        return self._described(chip, design, note)

    def _described(self, chip: Architecture, design: Design | InfeasibleError, note: str) -> Comparison:
        if isinstance(design, InfeasibleError):
            return self._row(chip, None, f"{note}; {design}")
        return self._row(chip, design, note)

    def _row(self, chip: Architecture, design: Design | None, note: str) -> Comparison:
        table = to_table([chip])
        return Comparison(
            name=chip.name,
            note=note,
            area_mm2=float(area_mm2(table)[0]),
            tdp_w=float(tdp_w(table, self.request.budgets.tdp_margin)[0]),
            clock_hz=float(table["clock_hz"][0]),
            published_area_mm2=chip.published_area_mm2,
            published_tdp_w=chip.published_tdp_w,
            result=next(iter(design.workloads.values())) if design else None,
        )
