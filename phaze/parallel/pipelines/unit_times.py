"""When actions of a schedule run if every one of them takes one unit of time, as formulas where there are some.

Actions of one unit wait for none of one another, so that they are waves of steps (`step_waves`), found without a look
at what waits for what.
"""

from __future__ import annotations

import numpy as np

from phaze.arrays import Integers
from phaze.parallel.pipelines.action_order import ActionKind, ActionsOfAll
from phaze.parallel.pipelines.pipeline_schedule import Schedule

ONE_WAY = (Schedule.GPIPE, Schedule.BREADTH_FIRST, Schedule.FORWARD, Schedule.CACHED)
"""All forward passes, then all backward passes."""


def unit_times(schedule: Schedule, actions: ActionsOfAll) -> Integers | None:
    """Unit in which every action runs, (A,); None for other schedules.

    Under 1F1B device i of p runs its n-th backward pass at 2p - 1 - i + 2n, the forward pass before that a unit
    earlier, and those before the first backward one, but the last of them, at i + n. Where all go one way first,
    devices wait 2 (p - 1 - i) units between their forward and their backward passes.
    """
    device, starts = actions.device, actions.starts
    backward, behind = actions.actions.kind == ActionKind.BACKWARD, len(starts) - 2 - device
    position = np.arange(len(device)) - starts[device]
    if schedule in ONE_WAY:
        in_order: Integers = position + device + 2 * behind * backward
        return in_order
    if schedule is not Schedule.ONE_F_ONE_B:
        return None
    number = actions.actions.microbatch
    turned = 2 * (len(starts) - 1) - 2 - device + 2 * (number - behind)
    ahead = np.where(number < behind, device + number, turned)
    found: Integers = np.where(backward, 2 * (len(starts) - 1) - 1 - device + 2 * number, ahead)
    return found


def waves_at(unit: Integers, before: Integers, source: Integers) -> tuple[Integers, Integers] | None:
    """Steps by units (U,), and where each begins, with the end; None if a step were no later than one it waits for.

    `before` (U,), `source` (U, K): the steps that each one waits for, U for none.
    """
    times = np.append(unit, -1)
    if not ((times[before] < unit).all() and (times[source] < unit[:, None]).all()):
        return None
    counts = np.bincount(unit)
    narrow = unit.astype(np.uint16) if len(counts) < 1 << 16 else unit  # which is sorted faster
    return np.argsort(narrow, kind="stable"), np.append(0, np.cumsum(counts[counts > 0]))
