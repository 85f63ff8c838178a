"""Known chips and a published plan beside the winner, under the same budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from phaze.errors import InfeasibleError
from phaze.explore.designs import DesignBuilder
from phaze.explore.document import Comparison, Design
from phaze.explore.progress import Clock
from phaze.explore.request import ExploreRequest
from phaze.hardware.architecture import Architecture, load_architecture, to_table
from phaze.hardware.area import area_mm2
from phaze.hardware.dvfs import clock_limit_hz, fit_clock
from phaze.hardware.power import tdp_w
from phaze.placement.cluster import FixedDegrees
from phaze.scheduling.passes import Effort

CHIPS = ("tpuv4", "a100-80gb", "h100", "phaze-reference")
REPORT_S = (
    5.0  # time for exact schedules of each; what is left open by then counts as scheduled heuristically
)


def comparisons(request: ExploreRequest, best: Design, builder: DesignBuilder) -> list[Comparison]:
    """Templates at the highest clock that keeps the power budget, and the expert plan on the winner."""
    rows = [_chip(request, name, builder) for name in CHIPS]
    expert = _expert(request, best)
    return [*rows, expert] if expert else rows


def _chip(request: ExploreRequest, name: str, builder: DesignBuilder) -> Comparison:
    published = load_architecture(name)
    budgets = request.budgets
    table = to_table([published])
    clock = float(published.value("clock_hz") or 0.0)
    note = "at its own clock"
    if budgets.power_w is not None:
        clock = float(fit_clock(table, budgets.power_w, budgets.tdp_margin)[0])
        held_back = clock < float(clock_limit_hz(table)[0])
        reason = f"the highest clock within {budgets.power_w:g} W" if held_back else "its highest clock"
        note = f"at {clock / 1e9:.2f} GHz, {reason}"
    if not np.isfinite(clock):
        return _row(request, published, None, f"does not fit {budgets.power_w:g} W at any sensible clock")
    chip = published.replace(published.name, clock_hz=clock, peak_clock_hz=clock)
    area = float(area_mm2(to_table([chip]))[0])
    if budgets.area_mm2 is not None and area > budgets.area_mm2:
        return _row(request, chip, None, f"{area:.0f} mm2 exceeds the area budget")
    return _evaluated(request, chip, builder, note)


def _expert(request: ExploreRequest, best: Design) -> Comparison | None:
    """The published hand-made plan on the winner; the data degree follows from the number of devices."""
    task = request.task
    plan = task.workload.expert_plan
    if plan is None:
        return None
    pipeline, tensor, _ = plan
    data = task.devices // (pipeline * tensor)
    if data < 1 or tensor not in task.widths:
        return None
    fixed = replace(FixedDegrees(), pipeline_parallel=pipeline, tensor_parallel=tensor, data_parallel=data)
    chip = Architecture(name="expert plan on the winner", fields=best.architecture)
    note = f"PHAZE's expert plan: pipeline {pipeline}, tensor {tensor}, data {data}"
    fixed_task = replace(task, fixed=fixed)
    return _evaluated(request, chip, DesignBuilder(fixed_task, request.budgets.tdp_margin), note)


def _evaluated(request: ExploreRequest, chip: Architecture, builder: DesignBuilder, note: str) -> Comparison:
    try:
        design = builder.best(chip, Effort(Clock(REPORT_S).left))
    except InfeasibleError as error:
        return _row(request, chip, None, f"{note}; {error}")
    return _row(request, chip, design, note)


def _row(request: ExploreRequest, chip: Architecture, design: Design | None, note: str) -> Comparison:
    table = to_table([chip])
    return Comparison(
        name=chip.name,
        note=note,
        area_mm2=float(area_mm2(table)[0]),
        tdp_w=float(tdp_w(table, request.budgets.tdp_margin)[0]),
        clock_hz=float(table["clock_hz"][0]),
        published_area_mm2=chip.published_area_mm2,
        published_tdp_w=chip.published_tdp_w,
        result=next(iter(design.workloads.values())) if design else None,
    )
