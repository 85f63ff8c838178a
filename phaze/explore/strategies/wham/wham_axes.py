"""The axes of a space as the search sees them: counts of cores that grow, numbers that are halved, the rest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze.arrays import Integers
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.spaces.clock_steps import CLOCK
from phaze.hardware.spaces.design_space import DesignSpace
from phaze.hardware.spaces.space_axis import Axis

TENSOR_CORES, VECTOR_CORES = "tensor_cores", "vector_cores"
PORTS = "global_buffer_bytes_per_cycle"
_OPERAND_BYTES = 2


@dataclass(frozen=True)
class SearchAxes:
    """Treatment of every axis of a space.

    An axis of one core count grows by conflicts, from its smallest option. Any other axis of one number (core
    rows and columns, vector ALUs, global buffer, ...) is a dimension, halved from its largest option. What has no
    order to halve along, such as a memory generation together with its stacks, is enumerated. Of memory sizes,
    which cost neither area nor power, the largest is taken. Bytes per cycle of the global buffer follow the arrays: the
    fewest that bring each a row and a column of 16 bits in every cycle, or the most there are. The clock follows the
    budgets: the highest that the cores leave room for.
    """

    candidates: Candidates

    @property
    def space(self) -> DesignSpace:
        """The space."""
        return self.candidates.space

    @cached_property
    def halved(self) -> tuple[int, ...]:
        """Positions of the axes that are halved."""
        return tuple(
            k
            for k, axis in enumerate(self.space.axes)
            if k not in {*self._counts, *self.followed, *self.clocked}
            and len(axis.fields) == 1
            and _is_numeric(axis)
        )

    @cached_property
    def enumerated(self) -> tuple[int, ...]:
        """Positions of the axes whose options all start a search of their own."""
        taken = {*self._counts, *self.halved, *self.followed, *self.clocked}
        return tuple(k for k in range(len(self.space.axes)) if k not in taken)

    @cached_property
    def followed(self) -> tuple[int, ...]:
        """Position of the axis of the global buffer's bytes per cycle, if there is one."""
        return tuple(k for k, axis in enumerate(self.space.axes) if axis.fields == (PORTS,))

    @cached_property
    def clocked(self) -> tuple[int, ...]:
        """Position of the axis of the clock, if there is one."""
        return tuple(k for k, axis in enumerate(self.space.axes) if axis.fields == (CLOCK,))

    @property
    def _counts(self) -> tuple[int, ...]:
        return tuple(
            k for k, axis in enumerate(self.space.axes) if axis.fields in ((TENSOR_CORES,), (VECTOR_CORES,))
        )

    def descending(self, axis: int) -> tuple[int, ...]:
        """Options of an axis by position, largest number first."""
        options = self.space.axes[axis].options
        return tuple(sorted(range(len(options)), key=lambda k: -float(options[k][0])))  # type: ignore[arg-type]

    @cached_property
    def counts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Options of the tensor-core count and of the vector-core count by position, smallest first.

        One option, of no axis, where the space does not vary the count.
        """
        found = {self.space.axes[k].fields[0]: tuple(reversed(self.descending(k))) for k in self._counts}
        return found.get(TENSOR_CORES, (0,)), found.get(VECTOR_CORES, (0,))

    def grid_numbers(self, chosen: dict[int, int]) -> Integers:
        """Numbers in the full grid of one choice of all other axes with every pair of core counts, (C, T, V).

        At every clock of the space, the highest first, unless one is chosen. Where a conditional axis does not vary,
        all its options stand for one design and have its number.
        """
        clocks = {k: np.array(self.descending(k))[:, None, None] for k in self.clocked if k not in chosen}
        if not self.followed:
            return self._grid_numbers({**chosen, **clocks})
        (ports,) = self.followed
        slowest = {k: int(options.ravel()[-1]) for k, options in clocks.items()}
        at_first = self._grid_numbers({**chosen, **slowest, ports: 0})
        table = self.tables(at_first.ravel())
        asked = table["tensor_cores"] * (table["tensor_core_rows"] + table["tensor_core_columns"])
        feeding = self._feeding(ports, asked).reshape(at_first.shape)
        return self._grid_numbers({**chosen, **clocks, ports: feeding})

    def _feeding(self, axis: int, elements: Integers) -> Integers:
        """Options by position, (N,), of the bytes per cycle that bring so many elements."""
        ascending = np.array(self.descending(axis)[::-1])
        sizes = np.array([float(self.space.axes[axis].options[k][0]) for k in ascending])
        found = np.searchsorted(sizes, _OPERAND_BYTES * elements)
        return ascending[np.minimum(found, len(sizes) - 1)]

    def _grid_numbers(self, chosen: Mapping[int, int | Integers]) -> Integers:
        of = {self.space.axes[k].fields[0]: k for k in self._counts}
        tensor, vector = (np.array(options) for options in self.counts)
        grid = np.zeros((1, len(tensor), len(vector)), dtype=np.int64)
        for k, axis in enumerate(self.space.axes):
            if k == of.get(TENSOR_CORES):
                digit: Integers | int = tensor[:, None]
            elif k == of.get(VECTOR_CORES):
                digit = vector[None, :]
            else:
                digit = chosen[k]
            grid = grid * len(axis.options) + digit
        return self.space.collapsed(grid.ravel()).reshape(grid.shape)

    @cached_property
    def _full(self) -> Candidates:
        """The candidates of all combinations, those that the space leaves out too."""
        return dataclasses.replace(self.candidates, space=self.space.unconstrained)

    def tables(self, grid: Integers) -> ArchitectureTable:
        """The hardware behind numbers in the grid, (N,), with the largest memory."""
        return self._full.table(self._with_memory(self._full.space.numbers(grid)))

    def numbers(self, grid: Integers) -> Integers:
        """Numbers as candidates, (N,), of numbers in the grid; -1 where the space does not have one."""
        numbers = self.space.numbers(grid)
        return np.where(numbers >= 0, self._with_memory(numbers), -1)

    def _with_memory(self, numbers: Integers) -> Integers:
        sizes = self.space.hbm_capacities_bytes
        return numbers * len(sizes) + int(np.argmax(sizes)) if sizes else numbers


def _is_numeric(axis: Axis) -> bool:
    values = [option[0] for option in axis.options]
    return all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values)
