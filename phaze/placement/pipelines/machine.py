"""The loops of the simulation as fast as they are worth."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from phaze.placement.pipelines import kernel
from phaze.placement.pipelines.chunks import FloatArray
from phaze.solvers.scheduling.machine_code import compiled

PLAIN_STEPS = 500_000
"""Steps that a process runs in plain Python, half a second, before it loads machine code, which takes longer."""


class Machine:
    """Plain functions for the first steps of a process, machine code from then on: both answer the same."""

    def __init__(self) -> None:
        """Nothing is compiled before there is reason to."""
        self._steps = 0

    def run(self, *arguments: object, end_s: FloatArray) -> FloatArray:
        """`kernel.run` with its last argument, filled; plain, of lists, whose entries are quicker to reach."""
        function = self.function("run", len(end_s))
        if function is not kernel.run:
            function(*arguments, end_s)
            return end_s
        ends: list[float] = end_s.tolist()
        function(*map(_listed, arguments), ends)
        return np.array(ends)

    def function(self, name: str, steps: int) -> Callable[..., Any]:
        """A function of `kernel` for so many steps."""
        self._steps += steps
        found: Callable[..., Any] = (vars(kernel) if self._steps <= PLAIN_STEPS else _compiled())[name]
        return found


def _listed(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_listed, value))
    return value.tolist() if isinstance(value, np.ndarray) else value


@cache
def machine() -> Machine:
    """The one of this process."""
    return Machine()


@cache
def _compiled() -> dict[str, Any]:
    return compiled(kernel)
