"""The highest clock at which a known chip draws no more than a limit while a workload runs under its best plan."""

from __future__ import annotations

from math import floor, inf, isnan

from phaze.explore.documents.result_document import Design
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.hardware.architecture import PUBLISHED, Architecture, to_table
from phaze.hardware.silicon.dvfs import clock_limit_hz, fit_clock
from phaze.hardware.silicon.package_power import tdp_w

STEP_HZ = 10e6
"""Clocks are whole multiples of it."""
_NEAR = 1.01  # times what is drawn is the limit: closer is not looked for
_MOST = 8  # clocks that are tried


def at_sustained_clock(
    chip: Architecture, limit_w: float, builder: DesignBuilder
) -> tuple[Architecture, Design] | None:
    """A chip at that clock and what it comes to there; None where it draws more at any clock that was tried.

    The next clock to try is the one at which full load would fall as what is drawn has to, so that a few are
    enough. Raises what evaluating a chip raises.
    """
    found: tuple[Architecture, Design] | None = None
    clock = top = float(clock_limit_hz(to_table([chip]))[0])
    over = inf
    for _ in range(_MOST):
        tried = at_clock(chip, clock)
        design = builder.best(tried)
        share = limit_w / next(iter(design.workloads.values())).drawn_w
        if share < 1:
            over = clock
        else:
            found = tried, design
            if clock == top or share < _NEAR:
                break
        clock = _next(chip, tried, share, over)
        if isnan(clock) or (found is not None and clock <= _clock(found[0])):
            break
    return found


def at_clock(chip: Architecture, clock_hz: float) -> Architecture:
    """A chip at another sustained clock, its published figures kept."""
    known = {name: getattr(chip, name) for name in PUBLISHED}
    return chip.replace(chip.name, clock_hz=clock_hz).model_copy(update=known)


def _next(chip: Architecture, tried: Architecture, share: float, over: float) -> float:
    """The clock at which full load is that share of what it was; below clocks that are too high; NaN without one."""
    load_w = float(tdp_w(to_table([tried]))[0])
    wanted = float(fit_clock(to_table([chip]), share * load_w)[0])
    return wanted if isnan(wanted) else min(floor(wanted / STEP_HZ) * STEP_HZ, over - STEP_HZ)


def _clock(chip: Architecture) -> float:
    return float(to_table([chip])["clock_hz"][0])
