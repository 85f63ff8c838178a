"""One architecture of a space at a time, under budgets: what a sampler asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from phaze.errors import InfeasibleError
from phaze.explore.document import Design
from phaze.explore.request import Budgets
from phaze.hardware.architecture import Architecture, from_table, to_table
from phaze.hardware.budgets import over_budget, shortfalls, smallest_demand
from phaze.hardware.space import DesignSpace, architecture_id

_CAPACITY = "hbm_capacity_bytes"  # searched beside the architecture where a space says so


@dataclass(frozen=True)
class SpaceEvaluator:
    """Evaluates the architectures of a space; `evaluate` finds the best placement of one of them."""

    space: DesignSpace
    budgets: Budgets
    evaluate: Callable[[Architecture], Design]

    def design(self, fields: Mapping[str, Any]) -> Design:
        """The design with these values of the varied fields. Raises InfeasibleError."""
        architecture = self._architecture(fields)
        self._check(architecture)
        return self.evaluate(architecture)

    def _architecture(self, fields: Mapping[str, Any]) -> Architecture:
        tied = {name: fields[source] for name, source in self.space.ties.items()}
        table = to_table([self.space.base.replace("sampled", **{**fields, **tied})])
        return from_table(table, 0, architecture_id(table, 0, [*self.space.fields_varied, *self._memory]))

    @property
    def _memory(self) -> tuple[str, ...]:
        return (_CAPACITY,) if self.space.hbm_capacities_bytes else ()

    def _check(self, architecture: Architecture) -> None:
        table, budgets = to_table([architecture]), self.budgets
        limits = (budgets.power_w, budgets.area_mm2)
        missed = [
            str(limit) for limit, mask in over_budget(table, *limits, budgets.tdp_margin).items() if mask[0]
        ]
        if self.space.area_filter is not None and not self.space.area_filter.keeps(table)[0]:
            missed.append("the area filter of the space")
        if missed:
            demand = smallest_demand(table, *limits, budgets.tdp_margin)
            raise InfeasibleError(
                f"{architecture.name} misses {', '.join(missed)}", shortfalls(demand, *limits)
            )


def parameters(space: DesignSpace) -> dict[str, list[dict[str, Any]]]:
    """The axes of a space as a sampler wants them: for each the choices, as values of its fields."""
    choices = {
        "+".join(axis.fields): [dict(zip(axis.fields, option, strict=True)) for option in axis.options]
        for axis in space.axes
    }
    if space.hbm_capacities_bytes:
        choices[_CAPACITY] = [{_CAPACITY: size} for size in space.hbm_capacities_bytes]
    return choices
