"""Markdown tables, and numbers as a reader wants them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import numpy as np


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; the first column is text, the others are numbers and stand right."""
    rule = ["---"] + ["--:"] * (len(headers) - 1)
    lines = [headers, rule, *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def duration(seconds: float) -> str:
    """Three digits and a unit: "3.44 ms"."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{_digits(seconds / scale)} {unit}"
    return f"{_digits(seconds / 1e-6)} us"


def spread(seconds: Sequence[float]) -> tuple[str, str]:
    """Median and 95th percentile."""
    return duration(statistics.median(seconds)), duration(float(np.percentile(seconds, 95)))


def percent(fraction: float) -> str:
    """A gap: "0", or two digits of a percentage."""
    return "0" if fraction < 1e-6 else f"{100 * fraction:.2g} %"


def _digits(value: float) -> str:
    """Three significant digits, not in powers of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
