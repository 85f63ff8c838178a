"""Errors a user can cause, each with its exit code; anything else that escapes is a bug of ours."""

from __future__ import annotations

from dataclasses import dataclass, field


class PhazeError(Exception):
    """Root of all errors that end in one clear sentence instead of a stack trace."""

    exit_code = 1


class InputError(PhazeError):
    """The user gave something that cannot be used: a name, a quantity, a file."""

    exit_code = 2


class Remark(UserWarning):
    """Something about an answer that a person should know, though nothing failed."""


MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What code that reads a document of others raises where the document is not as its format says."""


@dataclass(frozen=True)
class Shortfall:
    """One budget or limit that nothing satisfies.

    `demand` is the smallest value that would do (the largest where the limit is a `floor`), `limit` what was given,
    both in `unit`; `levers` are sentences that say what would help.
    """

    what: str
    limit: float
    demand: float
    unit: str
    levers: tuple[str, ...] = field(default=())
    floor: bool = False


class InfeasibleError(PhazeError):
    """No point satisfies the limits. Infeasible is an answer, and this carries it."""

    exit_code = 3

    def __init__(self, message: str, shortfalls: tuple[Shortfall, ...] = ()) -> None:
        super().__init__(message)
        self.shortfalls = shortfalls


NOTHING_KNOWN = "interrupted before any answer was known"

LEFT_OUT = "not worked out within the time limit"
"""What is told of parts of an answer that there was no time for."""


class OutOfTimeError(PhazeError):
    """The time limit passed before any answer was known."""

    exit_code = 4


class WorkerLostError(PhazeError):
    """Those that do the work have gone: a worker process died, or a cluster cannot be reached any more."""
