"""Rungs of the cost model."""

from __future__ import annotations

from enum import StrEnum


class Rung(StrEnum):
    """A lower bound; mechanisms from the hardware fields alone; laws fitted per chip family."""

    ROOFLINE = "roofline"
    ANALYTIC = "analytic"
    CALIBRATED = "calibrated"
