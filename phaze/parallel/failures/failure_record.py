"""A failure record: how often what fails, how long repairs, restarts and checkpoints take, and its YAML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.hardware.catalogue import Catalogue, find, packaged
from phaze.quantity import si_value
from phaze.ranges import Line
from phaze.yaml_file import checked, read_yaml

_HOST = Annotated[int, Field(ge=1, le=1024)]
_LONGEST_S = 3.2e10  # a thousand years


class Unit(StrEnum):
    """Unit that fails as a whole, and takes its devices with it."""

    DEVICE = "device"
    LINK = "link"  # one for each device
    HOST = "host"
    DOMAIN = "domain"  # of scale-up: a switch, a rack
    JOB = "job"  # interrupted, without a device being out


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class _ComponentFile(_Record):
    fails: Unit
    mtbf: object
    repair: object = None
    planned: bool = False
    source: str


class _RestartFile(_Record):
    time: object
    source: str


class _CheckpointFile(_Record):
    time: object = None
    bandwidth: object = None
    source: str


class _FailuresFile(_Record):
    schema_version: Literal[1]
    name: Line
    host_devices: _HOST
    components: Annotated[tuple[_ComponentFile, ...], Field(min_length=1, max_length=64)]
    restart: _RestartFile
    checkpoint: _CheckpointFile


class Component(_Record):
    """One way to fail, exponential and independent: mean time between failures of one, and to repair it, in s.

    `planned`: announced, so that a checkpoint is written before and no work is lost.
    """

    fails: Unit
    mtbf_s: float
    repair_s: float = 0.0
    planned: bool = False

    @property
    def out(self) -> float:
        """Share of the time in which one of them is out: repair / (MTBF + repair)."""
        return self.repair_s / (self.mtbf_s + self.repair_s)


class FailureRecord(_Record):
    """How a cluster fails and recovers.

    `restart_s`: from a failure to the next step, work done again aside. A checkpoint takes `checkpoint_s`, or its bytes
    over `checkpoint_bytes_per_s` of all devices together.
    """

    name: str
    host_devices: int
    components: tuple[Component, ...]
    restart_s: float
    checkpoint_s: float | None = None
    checkpoint_bytes_per_s: float | None = None

    def interruptions_per_s(self, devices: int, domain_devices: int, *, planned: bool) -> float:
        """Interruptions of a job on so many devices in domains of some size, per second."""
        count = {
            Unit.DEVICE: devices,
            Unit.LINK: devices,
            Unit.HOST: ceil(devices / self.host_devices),
            Unit.DOMAIN: ceil(devices / domain_devices),
            Unit.JOB: 1,
        }
        return sum(count[c.fails] / c.mtbf_s for c in self.components if c.planned is planned)

    def write_s(self, checkpoint_bytes: float) -> float:
        """Seconds in which a checkpoint of so many bytes is written."""
        if self.checkpoint_bytes_per_s is None:
            return self.checkpoint_s or 0.0
        return checkpoint_bytes / self.checkpoint_bytes_per_s

    def devices_out(self, domain_devices: int) -> Floats:
        """Probability that 0, 1, ... devices of a domain are out, (domain_devices + 1,).

        Hosts that reach beyond a domain are out in each of its domains alike.
        """
        whole, rest = divmod(domain_devices, self.host_devices)
        hosts = [self._host_out(self.host_devices)] * whole + ([self._host_out(rest)] if rest else [])
        found = np.ones(1)
        for one in hosts:
            found = np.convolve(found, one)
        return _or_all(found, self._out(Unit.DOMAIN))

    def _host_out(self, devices: int) -> Floats:
        single = 1 - (1 - self._out(Unit.DEVICE)) * (1 - self._out(Unit.LINK))
        found = np.ones(1)
        for _ in range(devices):
            found = np.convolve(found, [1 - single, single])
        return _or_all(found, self._out(Unit.HOST))

    def _out(self, unit: Unit) -> float:
        """Share of the time in which one of a unit is out for any of its reasons."""
        there = 1.0
        for one in self.components:
            if one.fails is unit and not one.planned:
                there *= 1 - one.out
        return 1 - there


def _or_all(pmf: Floats, share: float) -> Floats:
    """The same where with some probability all of them are out together."""
    found = (1 - share) * pmf
    found[-1] += share
    return found


def independent_devices(share: float) -> FailureRecord:
    """Devices of which a share is out at any time, each by itself, and nothing else fails or takes time."""
    if not 0 <= share < 1:
        raise InputError(f"a share of devices that are out is from 0 to below 1, not {share:g}")
    each = Component(fails=Unit.DEVICE, mtbf_s=1 - share, repair_s=share)
    return FailureRecord(
        name=f"{share:g} out", host_devices=1, components=(each,), restart_s=0, checkpoint_s=0
    )


def list_failures() -> tuple[str, ...]:
    """Names of the packaged failure records."""
    return tuple(packaged(Catalogue.FAILURE))


def load_failures(name_or_path: str | Path) -> FailureRecord:
    """A failure record by packaged name or file. Raises InputError."""
    path = find(Catalogue.FAILURE, name_or_path)
    where, file = str(path), checked(_FailuresFile, read_yaml(path), str(path))
    written = file.checkpoint
    if (written.time is None) is (written.bandwidth is None):
        raise InputError(f"{where}: checkpoint has either a time or a bandwidth")
    rate = written.bandwidth
    return FailureRecord(
        name=file.name,
        host_devices=file.host_devices,
        components=tuple(_components(file.components, where)),
        restart_s=_seconds(file.restart.time, f"{where}: restart.time", least=0.0),
        checkpoint_s=None if written.time is None else _seconds(written.time, f"{where}: checkpoint.time", 0),
        checkpoint_bytes_per_s=None if rate is None else _rate(rate, f"{where}: checkpoint.bandwidth"),
    )


def _components(files: Sequence[_ComponentFile], where: str) -> Iterator[Component]:
    for place, one in enumerate(files):
        here = f"{where}: components.{place}"
        lasts = one.fails is not Unit.JOB and not one.planned
        if lasts is (one.repair is None):
            right = "a repair time" if lasts else "no repair time: no device is out"
            raise InputError(f"{here}: a {'planned ' if one.planned else ''}{one.fails} has {right}")
        repair_s = 0.0 if one.repair is None else _seconds(one.repair, f"{here}.repair", least=0.0)
        yield Component(
            fails=one.fails,
            mtbf_s=_seconds(one.mtbf, f"{here}.mtbf", least=1.0),
            repair_s=repair_s,
            planned=one.planned,
        )


def _seconds(value: object, where: str, least: float) -> float:
    found = si_value(value, "s", where)
    if not least <= found <= _LONGEST_S:
        raise InputError(f"{where}: {value!r} is not a time from {least:g} s to 1000 years")
    return found


def _rate(value: object, where: str) -> float:
    found = si_value(value, "byte/s", where)
    if not 1 <= found <= 1e18:
        raise InputError(f"{where}: {value!r} is not from 1B/s to 1e18B/s")
    return found
