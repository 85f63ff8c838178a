"""Known chips and a published plan beside the winner, under the same budget, as far as there is time.

They are no part of the answer: what fails, or is not done in time, is reported in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf
from typing import Any

import numpy as np

from phaze.errors import LEFT_OUT, InfeasibleError, InputError, OutOfTimeError
from phaze.explore.answers.sustained_clock import at_clock, at_sustained_clock
from phaze.explore.documents.result_document import Comparison, Design
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.request.explore_request import ExploreRequest
from phaze.explore.request.search_resources import run_in_fork
from phaze.hardware.architecture import Architecture, load_architecture, to_table
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.dvfs import clock_limit_hz, fit_clock
from phaze.hardware.silicon.package_power import tdp_w
from phaze.parallel.chunk_division import Grain
from phaze.parallel.plan_choices import Cut
from phaze.parallel.recount.plan_checker import PlanError

CHIPS = ("tpuv4", "a100-80gb", "h100", "phaze-reference")


def comparisons(
    request: ExploreRequest, best: Design, builder: DesignBuilder, left_s: Callable[[], float] = lambda: inf
) -> list[Comparison]:
    """Known chips and the expert plan beside the winner, as far as the time goes that is left."""
    chips = partial(chips_beside, request, replace(builder, left_s=left_s))
    plan = partial(plan_beside, request, best.architecture, left_s)
    with run_in_fork(chips, left_s) as some, run_in_fork(plan, left_s) as others:
        return [*(some() or ()), *(others() or ())]


def left_out(request: ExploreRequest, best: Design) -> list[Comparison]:
    """All of them where there is no time for any."""
    builder = DesignBuilder(request.task, request.budgets.tdp_margin)
    none = next(chips_beside(request, builder)), *islice(plan_beside(request, best.architecture), 1)
    return [one for some in none for one in some]


def chips_beside(
    request: ExploreRequest, builder: DesignBuilder, chips: Sequence[str] = CHIPS
) -> Iterator[list[Comparison]]:
    """Templates at the highest clock that keeps the power budget, again after each one that is worked out.

    They do not depend on the winner.
    """
    return _Beside(request).chips(chips, builder)


def plan_beside(
    request: ExploreRequest, winner: Mapping[str, Any], left_s: Callable[[], float] = lambda: inf
) -> Iterator[list[Comparison]]:
    """The expert plan on the fields of the winner, where there is one: before and after it is worked out."""
    return _Beside(request).expert(winner, left_s)


@dataclass(frozen=True)
class _Beside:
    """Evaluates one thing at a time beside the winner of a request."""

    request: ExploreRequest

    def chips(self, names: Sequence[str], builder: DesignBuilder) -> Iterator[list[Comparison]]:
        """Templates under the budgets."""
        if self.request.budgets.drawn_limit_w is not None:
            return self._sustaining(names, self.request.budgets.drawn_limit_w, builder)
        return self._each([self._within(name) for name in names], builder)

    def _sustaining(
        self, names: Sequence[str], limit_w: float, builder: DesignBuilder
    ) -> Iterator[list[Comparison]]:
        """Templates at the highest clocks at which they draw no more than a limit under their best plans."""
        chips = [load_architecture(name) for name in names]
        told = [self._row(chip, None, f"at its own clock; {LEFT_OUT}") for chip in chips]
        yield [*told]
        for place, chip in enumerate(chips):
            try:
                told[place] = self._sustained(chip, limit_w, builder)
            except (InfeasibleError, InputError, PlanError) as error:
                told[place] = self._row(chip, None, f"at its own clock; {error}")
            except OutOfTimeError:
                return
            yield [*told]

    def _sustained(self, chip: Architecture, limit_w: float, builder: DesignBuilder) -> Comparison:
        area, most = float(area_mm2(to_table([chip]))[0]), self.request.budgets.area_mm2
        if most is not None and area > most:
            return self._row(chip, None, f"{area:.0f} mm2 exceeds the area budget")
        found = at_sustained_clock(chip, limit_w, builder)
        if found is None:
            return self._row(chip, None, f"draws more than {limit_w:g} W at any sensible clock")
        held, design = found
        clock, top = (float(to_table([one])["clock_hz"][0]) for one in (held, chip))
        highest = max(top, float(clock_limit_hz(to_table([chip]))[0]))
        reason = "its highest clock" if clock >= highest else f"the highest clock that draws {limit_w:g} W"
        return self._row(held, design, f"at {clock / 1e9:.2f} GHz, {reason}")

    def _each(
        self, wanted: Sequence[tuple[Architecture, str, bool]], builder: DesignBuilder
    ) -> Iterator[list[Comparison]]:
        """Chips, remarks on them and whether they keep the budgets: all of them, again after each one that is done."""
        told = [self._row(c, None, f"{note}; {LEFT_OUT}" if fits else note) for c, note, fits in wanted]
        yield [*told]
        fitting = [place for place, (*_, fits) in enumerate(wanted) if fits]
        designs = builder.each([wanted[place][0] for place in fitting])
        try:
            for number, design in designs:
                chip, note, _ = wanted[fitting[number]]
                told[fitting[number]] = self._described(chip, design, note)
                yield [*told]
        except Exception as error:  # noqa: BLE001 - whatever it is, the winner is worth more
            reason = f"not worked out: {error}"
            yield [one.model_copy(update={"note": one.note.replace(LEFT_OUT, reason)}) for one in told]

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
        chip = at_clock(published, clock)
        area = float(area_mm2(to_table([chip]))[0])
        if budgets.area_mm2 is not None and area > budgets.area_mm2:
            return chip, f"{area:.0f} mm2 exceeds the area budget", False
        return chip, note, True

    def expert(self, winner: Mapping[str, Any], left_s: Callable[[], float]) -> Iterator[list[Comparison]]:
        """The published hand-made plan on the winner; the data degree follows from the number of devices."""
        task = self.request.task
        if task.workload.expert_plan is None:
            return iter(())
        pipeline, tensor, _ = task.workload.expert_plan
        data = task.devices // (pipeline * tensor)
        if data < 1 or tensor not in task.workload.tensor_parallel_divisors(task.devices):
            return iter(())
        held = {"pipeline": (pipeline,), "tensor": (tensor,), "data": (data,), "grains": (Grain.BLOCK,)}
        chip = Architecture(name="expert plan on the winner", fields=winner)
        # Its degrees may be none that the space has; all else is of the space that is searched.
        anywhere = task.plans.model_copy(update={"ragged": True, "stages": Cut.LAYERS})
        builder = DesignBuilder(
            replace(task, held=held, plans=anywhere),
            self.request.budgets.tdp_margin,
            left_s,
        )
        note = f"PHAZE's expert plan: pipeline {pipeline}, tensor {tensor}, data {data}"
        return self._each([(chip, note, True)], builder)

    def _described(self, chip: Architecture, design: Design | Exception, note: str) -> Comparison:
        if isinstance(design, Exception):
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
            node=str(chip.value("node")),
            published_area_mm2=chip.published_area_mm2,
            published_tdp_w=chip.published_tdp_w,
            result=next(iter(design.workloads.values())) if design else None,
        )
