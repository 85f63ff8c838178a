"""The architectures a search may choose from: a space with its memory sizes and clocks within budgets, and by how
much any architecture misses those limits, known from its fields without evaluating it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats, Integers, Rows
from phaze.errors import InfeasibleError, InputError
from phaze.explore.request.explore_request import Budgets
from phaze.hardware.architecture import Architecture, from_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.budgets import (
    Demand,
    Limit,
    power_limit_w,
    shortfalls,
    smallest_demand,
    weigh,
)
from phaze.hardware.economics.package_price import price_usd
from phaze.hardware.hardware_fields import FieldValue
from phaze.hardware.silicon.die_area import area_mm2, reticle_share, shoreline_share
from phaze.hardware.silicon.dvfs import fit_clock
from phaze.hardware.silicon.package_power import cooling_share, tdp_w
from phaze.hardware.spaces.design_space import DesignSpace, architecture_id

MHZ = 1e6
BLOCK = 1 << 17
PART = 1 << 16  # candidates whose columns stay in the processor's cache while budgets are looked at
SURVEY = 1 << 16  # candidates that show the combinations of a space


@dataclass(frozen=True)
class Block:
    """Some candidates that keep the budgets: numbers, hardware, TDP in W and area in mm2, (A,) each."""

    numbers: Integers
    table: ArchitectureTable
    tdp_w: Floats
    area_mm2: Floats

    def __len__(self) -> int:
        """How many."""
        return len(self.numbers)

    def take(self, rows: Rows) -> Block:
        """Those at some rows."""
        return Block(self.numbers[rows], self.table.take(rows), self.tdp_w[rows], self.area_mm2[rows])

    @staticmethod
    def join(parts: Sequence[Block]) -> Block:
        """Several blocks as one, in their order."""
        columns = ("numbers", "tdp_w", "area_mm2")
        numbers, tdp, area = (np.concatenate([getattr(part, name) for part in parts]) for name in columns)
        return Block(numbers, ArchitectureTable.join([part.table for part in parts]), tdp, area)


@dataclass(frozen=True)
class Candidates:
    """A space under budgets, enumerated block by block so that memory does not grow with it."""

    space: DesignSpace
    budgets: Budgets

    @property
    def size(self) -> int:
        """Architectures of the space, each counted once per memory size, whether they keep the budgets or not."""
        return self.space.size * max(1, len(self.space.hbm_capacities_bytes))

    def table(self, numbers: Integers | range) -> ArchitectureTable:
        """The hardware of some candidates, budgets aside; with `dvfs` at the clock that keeps the power budget."""
        sizes = self.space.hbm_capacities_bytes
        wanted = np.asarray(numbers, dtype=np.int64)
        if sizes:
            table = self.space.table(wanted // len(sizes))
            table = table.replace(hbm_capacity_bytes=np.array(sizes)[wanted % len(sizes)])
        else:
            table = self.space.table(wanted)
        return _slowed(table, self.budgets) if self.budgets.dvfs else table

    def survey(self, most: int = SURVEY) -> ArchitectureTable:
        """About so many candidates at most, to show the combinations of hardware that costs depend on.

        They are evenly spread, by a step without a common divisor with the size, hence with the number of values
        of any axis: any other one would meet some values never.
        """
        step = -(-self.size // most)
        while math.gcd(step, self.size) > 1:
            step += 1
        return self.table(np.arange(0, self.size, step, dtype=np.int64))

    def within(self, numbers: Integers | range) -> Block:
        """Those of some candidates that keep the budgets, the reticle and the shoreline."""
        wanted = np.asarray(numbers, dtype=np.int64)
        parts = [self._within(wanted[i : i + PART]) for i in range(0, max(len(wanted), 1), PART)]
        return parts[0] if len(parts) == 1 else Block.join(parts)

    def _within(self, wanted: Integers) -> Block:
        wanted = wanted[self._may_keep(wanted)]
        table = self.table(wanted)
        found = weigh(table, *self.budgets.limits)
        rows = np.flatnonzero(found.kept)
        return Block(wanted[rows], table.take(rows), found.tdp_w[rows], found.area_mm2[rows])

    def _may_keep(self, wanted: Integers) -> Flags:
        """Which of some candidates, (N,), are not ruled out at the lowest clock already: at none does any take less.

        Asked where several of them differ in the clock alone.
        """
        sizes = max(1, len(self.space.hbm_capacities_bytes))
        slowest = self.space.slowest(wanted // sizes)
        if slowest is None or self.budgets.dvfs:
            return np.ones(len(wanted), dtype=np.bool_)
        slowest = slowest * sizes + wanted % sizes
        each, of = np.unique(slowest, return_inverse=True)
        if 2 * len(each) > len(wanted):
            return np.ones(len(wanted), dtype=np.bool_)
        kept: Flags = weigh(self.table(each), *self.budgets.limits).kept[of]
        return kept

    def kept(self, numbers: Integers) -> Block:
        """Some candidates that are known to keep them."""
        table = self.table(numbers)
        return Block(numbers, table, tdp_w(table, self.budgets.tdp_margin), area_mm2(table))

    def blocks(self, rows: int = BLOCK) -> Iterator[Block]:
        """All candidates that keep the budgets, in the order of their numbers."""
        for start in range(0, self.size, rows):
            yield self.within(range(start, min(start + rows, self.size)))

    def all(self) -> Block:
        """All of them at once.

        Raises InfeasibleError, with the smallest budgets that would do, where there is none.
        """
        block = self.within(range(self.size))
        if not len(block):
            raise self.none_left()
        return block

    def none_left(self) -> InfeasibleError:
        """Why no candidate keeps the budgets: the smallest that one would keep, and what would help."""
        b, demand = self.budgets, Demand()
        for start in range(0, self.size, BLOCK):
            table = self.table(range(start, min(start + BLOCK, self.size)))
            demand = demand.merge(smallest_demand(table, *b.limits))
        if not demand.built:
            return InfeasibleError(
                f"no architecture of space {self.space.name} can be built: a die is larger than the reticle, has no "
                "room at its edges for the HBM stacks, or its cooling does not carry the heat of full load; search "
                "smaller arrays and buffers, fewer stacks, or lower clocks"
            )
        return InfeasibleError(
            f"no architecture of space {self.space.name} keeps the budgets",
            shortfalls(demand, b.tdp_limit_w, b.area_mm2, b.power_density_w_per_mm2, b.price_usd),
        )

    @cached_property
    def varied(self) -> tuple[str, ...]:
        """Hardware fields in which candidates can differ."""
        memory = ("hbm_capacity_bytes",) if self.space.hbm_capacities_bytes else ()
        clock = ("clock_hz",) if self.budgets.dvfs else ()
        return (*self.space.fields_varied, *memory, *clock)

    @property
    def differing(self) -> tuple[str, ...]:
        """Those, and figures of the base chip that follow from them: what tells a candidate from the base."""
        figures = (override.field for override in self.space.overrides)
        return tuple(dict.fromkeys((*self.varied, *self.space.grown_fields, *figures)))

    def number(self, fields: Mapping[str, FieldValue]) -> int:
        """The number of the candidate with these hardware fields; those that do not vary are not looked at.

        Raises InputError where the space does not have it.
        """
        sizes = self.space.hbm_capacities_bytes
        number = self.space.number(fields)
        return number * len(sizes) + sizes.index(fields["hbm_capacity_bytes"]) if sizes else number

    def architecture(self, number: int) -> Architecture:
        """One candidate by number, named by its id."""
        table = self.table(np.array([number]))
        return from_table(table, 0, architecture_id(table, 0, self.varied))


def _slowed(table: ArchitectureTable, budgets: Budgets) -> ArchitectureTable:
    """Every architecture at its own clock or, where that draws too much, at the highest that keeps the budget."""
    if budgets.power_w is None and budgets.power_density_w_per_mm2 is None:
        raise InputError("--dvfs lowers the clock until a power budget holds: give one with --power")
    limit = power_limit_w(table, budgets.power_w, budgets.power_density_w_per_mm2)
    fitted = np.floor(fit_clock(table, limit, budgets.tdp_margin) / MHZ) * MHZ
    own = np.asarray(table["clock_hz"], dtype=np.float64)
    return table.replace(clock_hz=np.where(fitted >= own, own, np.where(fitted > 0, fitted, own)))


_LEAST = 1e-9  # what is missed by less than numbers can tell is still missed


@dataclass(frozen=True)
class SpaceLimits:
    """The budgets of a search, what can be built, and what its space allows."""

    space: DesignSpace
    budgets: Budgets

    def missed(self, table: ArchitectureTable) -> dict[str, Floats]:
        """For each limit by what share of it each architecture misses it, (A,); at most 0 where it is kept."""
        return self._budgets(table) | self._space(table)

    def _budgets(self, table: ArchitectureTable) -> dict[str, Floats]:
        b, area = self.budgets, area_mm2(table)
        tdp = tdp_w(table, b.tdp_margin)
        shares = {
            Limit.RETICLE: reticle_share(table, area),
            Limit.SHORELINE: shoreline_share(table, area),
            Limit.HEAT: cooling_share(table),
        }
        if b.tdp_limit_w is not None:
            beside = 0.0 if b.network is None else b.network.of(table)
            shares[Limit.POWER] = (tdp + beside) / b.tdp_limit_w
        if b.area_mm2 is not None:
            shares[Limit.AREA] = area / b.area_mm2
        if b.power_density_w_per_mm2 is not None:
            shares[Limit.POWER_DENSITY] = tdp / area / b.power_density_w_per_mm2
        if b.price_usd is not None:
            shares[Limit.PRICE] = price_usd(table, area, b.economics) / b.price_usd
        over = weigh(table, *b.limits).over
        return {limit.value: _signed(share - 1.0, ~over[limit]) for limit, share in shares.items()}

    def _space(self, table: ArchitectureTable) -> dict[str, Floats]:
        space = self.space
        missed = {c.text: _signed(c.apart(table), c.keeps(table)) for c in space.constraints}
        for pin in space.pins:
            missed[f"{pin.field} as fixed"] = _signed(np.ones(len(table)), pin.holds(table.columns))
        if (area_filter := space.area_filter) is not None:
            share = area_mm2(table) / area_filter.limit_mm2
            beyond = np.maximum(share - 1.0, 1.0 - share / area_filter.floor if area_filter.floor else 0.0)
            missed["area filter"] = _signed(beyond, area_filter.keeps(table))
        return missed


def _signed(amount: Floats, kept: NDArray[np.bool_]) -> Floats:
    """The amount where a limit is missed, and no more than zero where it is kept."""
    return np.where(kept, np.minimum(amount, 0.0), np.maximum(amount, _LEAST))
