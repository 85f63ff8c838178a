"""What the way of measuring adds to the time of kernels: hosts that start them, clocks that tick.

A framework takes some time on the host to start an operator, so that short kernels are measured as that time
and long ones as their own behind a part of it. That is a property of the host and the software of a
measurement, not of the chip: it is read off the published rows of each set (`timers.yaml`), with a value for
devices that have none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources

from pydantic import BaseModel, ConfigDict, TypeAdapter

from phaze.yaml_file import parse_yaml


@dataclass(frozen=True, slots=True)
class Timer:
    """A kernel starts `lag_s` after the clock; nothing is measured below `floor_s`, nor finer than `tick_s`."""

    lag_s: float = 0.0
    floor_s: float = 0.0
    tick_s: float = 0.0

    def reading_s(self, kernel_s: float) -> float:
        """What the timer shows for kernels of that many seconds."""
        shown = max(self.floor_s, self.lag_s + kernel_s)
        return shown if self.tick_s == 0 else max(1, round(shown / self.tick_s)) * self.tick_s


EXACT = Timer()
"""Shows kernels as they are."""


class _Host(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    lag_s: float = 0.0
    floor_s: float = 0.0


class _Set(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    tick_s: float = 0.0
    operators: Mapping[str, float] = {}
    hosts: tuple[_Host, ...] = ()


@lru_cache(maxsize=1)
def _sets() -> Mapping[str, _Set]:
    file = resources.files("phaze.validation").joinpath("timers.yaml")
    content = parse_yaml(file.read_text(encoding="utf-8"), "validation/timers.yaml")
    return TypeAdapter(dict[str, _Set]).validate_python(content)


@lru_cache(maxsize=1024)
def timer_of(data_set: str, device: str, operator: str = "") -> Timer:
    """Timer of an operator's rows of a data set: the first host whose expression is found in "device operator"."""
    one = _sets().get(data_set, _Set())
    timer = Timer(tick_s=one.tick_s)
    work = one.operators.get(operator, 1.0)
    for host in one.hosts:
        if re.search(host.name, f"{device} {operator}"):
            return replace(timer, lag_s=host.lag_s * work, floor_s=host.floor_s * work)
    return timer
