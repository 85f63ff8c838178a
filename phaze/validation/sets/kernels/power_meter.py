"""What NVML shows of a kernel's power: the mean of samples over a loop, each of them a mean of the second before.

From Ampere on, but for GA100, `nvmlDeviceGetPowerUsage` returns the mean of the last second (NVML API reference), and
the collector of the readings asks for it every 0.1 s, first at the start of the loop (aiconfigurator,
collector/helper.py). A loop of one second after an idle one therefore shows half of what its kernel draws above idle.
"""

from __future__ import annotations

import numpy as np

from phaze.arrays import Floats

WINDOW_S = 1.0
"""Seconds over which a sample is a mean."""

SAMPLE_S = 0.1
"""Seconds from one sample to the next."""

WARM_CALLS = 6
"""Calls of the kernel right before the loop: three to time it and three of the captured graph."""

LONG_S = 0.3
"""Loops that last as long are judged first; of shorter ones the mean holds mostly what was before."""

SETTLED = 0.6
"""Share of the meter's seconds that loop and warm-up fill in readings that hang little on what was before."""

IDLE_SHARE = 0.25
"""Share of the power limit below which a GPU does nothing: an A100 draws 62 W of 400, idle H200s and GB200s read 137 W
of 700 and 225 W of 1,200. A reading as low while kernels run is one of another time, or of another board."""

_MOST_SAMPLES, _ROUNDING = 400, 1e-9


def filled(loop_s: Floats, latency_s: Floats) -> Floats:
    """Share of the seconds before each sample that loop and warm-up fill, mean over the samples, (R,)."""
    samples = np.arange(_MOST_SAMPLES)
    taken = samples[None, :] <= np.floor(loop_s / SAMPLE_S + _ROUNDING)[:, None]
    running_s = samples[None, :] * SAMPLE_S + WARM_CALLS * latency_s[:, None]
    share = np.minimum(1.0, running_s / WINDOW_S)
    return np.asarray((share * taken).sum(axis=1) / taken.sum(axis=1))


def shown(filled_share: Floats, held: Floats) -> Floats:
    """Share of a kernel's power above idle that the reading shows, (R,): s + held x (1 - s).

    `held`: share of the time before the warm-up, as far back as the meter looks, in which the chip was loaded alike.
    """
    return np.asarray(filled_share + held * (1.0 - filled_share))
