"""The loops of the simulation as fast as they are worth."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from phaze.arrays import Floats, Integers
from phaze.parallel.pipelines import simulation_loops
from phaze.solvers.scheduling.machine_code import compiled

PLAIN_STEPS = 1_000_000
"""Steps that a process runs in plain Python, before it loads machine code, which takes about as long as these."""


class Machine:
    """Plain functions for the first steps of a process, machine code from then on: both answer the same."""

    def __init__(self, module: ModuleType = simulation_loops) -> None:
        """Nothing of the module is compiled before there is reason to."""
        self._module = module
        self._steps = 0

    def fill(self, name: str, *arguments: object, end_s: Floats) -> Floats:
        """The last argument of a function of the module, filled; plain, of lists, whose entries are quicker."""
        function = self.function(name, len(end_s))
        if function is not vars(self._module)[name]:
            function(*arguments, end_s)
            return end_s
        ends: list[float] = end_s.tolist()
        function(*map(_listed, arguments), ends)
        return np.array(ends)

    def sort(self, first: Integers, source: Integers) -> Integers:
        """Steps as `simulation_loops.sort` finds them; plain of lists, too."""
        function, (one, other) = self.function("sort", len(source)), np.ascontiguousarray(source.T)
        done, found = np.zeros(len(source) + 1, dtype=np.bool_), np.zeros(len(source), dtype=np.int64)
        done[-1] = True
        if function is not simulation_loops.sort:
            return found[: function(first, one, other, done, found)]
        order: list[int] = found.tolist()
        length = function(*map(_listed, (first, one, other, done)), order)
        return np.array(order[:length], dtype=np.int64)

    def function(self, name: str, steps: int) -> Callable[..., Any]:
        """A function of the module for so many steps."""
        return self.compiled(name, steps) or vars(self._module)[name]

    def compiled(self, name: str, steps: int) -> Callable[..., Any] | None:
        """Loops as machine code; None as long as that does not pay."""
        self._steps += steps
        return _compiled(self._module)[name] if self._steps > PLAIN_STEPS else None


def _listed(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_listed, value))
    return value.tolist() if isinstance(value, np.ndarray) else value


@cache
def machine(module: ModuleType = simulation_loops) -> Machine:
    """The one of this process, of a module with such loops."""
    return Machine(module)


@cache
def _compiled(module: ModuleType) -> dict[str, Any]:
    return compiled(module)
