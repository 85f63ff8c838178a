"""The loops of the simulation as fast as they are worth."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from phaze.placement.pipelines import kernel
from phaze.solvers.scheduling.machine_code import compiled

PLAIN_STEPS = 500_000
"""Steps that a process runs in plain Python, half a second, before it loads machine code, which takes longer."""


class Machine:
    """Plain functions for the first steps of a process, machine code from then on: both answer the same."""

    def __init__(self) -> None:
        """Nothing is compiled before there is reason to."""
        self._steps = 0

    def function(self, name: str, steps: int) -> Callable[..., Any]:
        """A function of `kernel` for so many steps."""
        self._steps += steps
        found: Callable[..., Any] = (vars(kernel) if self._steps <= PLAIN_STEPS else _compiled())[name]
        return found


@cache
def machine() -> Machine:
    """The one of this process."""
    return Machine()


@cache
def _compiled() -> dict[str, Any]:
    return compiled(kernel)
