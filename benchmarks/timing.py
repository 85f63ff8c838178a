"""How long work takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def seconds(work: Callable[[], _T]) -> tuple[_T, float]:
    """The answer and the processor time it took, s: other jobs on the machine disturb it less than a clock."""
    began = time.process_time()
    answer = work()
    return answer, time.process_time() - began


def median_s(work: Callable[[], object], repeats: int = 3) -> float:
    """Median processor time of some runs, s; one run only where it takes long."""
    times = [seconds(work)[1]]
    while len(times) < repeats and times[0] < 5.0:
        times.append(seconds(work)[1])
    return statistics.median(times)
