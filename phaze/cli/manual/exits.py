"""What the exit codes of a verb mean."""

from __future__ import annotations

from collections.abc import Mapping

EXITS: Mapping[int, str] = {
    0: "answered",
    1: "a bug of ours",
    2: "bad input",
    3: "infeasible: nothing fits",
    4: "time over without any answer",
    5: "a check failed",
    130: "interrupted",
}
"""Every exit code of `dse`."""

ALWAYS = (0, 2, 130)
"""Codes that every verb may end with, besides 1; a verb's text names the others."""


def sentence(codes: tuple[int, ...]) -> str:
    """The codes of a verb with their meanings, in one line."""
    return "; ".join(f"{code} {EXITS[code]}" for code in sorted({*ALWAYS, *codes}))
